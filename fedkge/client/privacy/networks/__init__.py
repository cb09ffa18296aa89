"""Vertex rows that hide edges, or claim to: mechanisms that take a network and release rows."""
