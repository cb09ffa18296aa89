"""Knowledge-graph embeddings across organisations that do not share their graphs."""

__version__ = "0.1.0"
