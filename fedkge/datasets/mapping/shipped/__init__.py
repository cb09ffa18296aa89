"""Mappings that come with fedkge, and what was published of the graphs that they make."""
