"""File formats of graphs and splits."""
