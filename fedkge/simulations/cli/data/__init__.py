"""Commands of `fedkge data` that are long."""
