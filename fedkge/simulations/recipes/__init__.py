"""Published tables, computed anew."""
