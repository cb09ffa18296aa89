"""Local training and evaluation of one client's model."""
