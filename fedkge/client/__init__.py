"""What a client does with its own graph: embed it, train on it, rank with it."""
