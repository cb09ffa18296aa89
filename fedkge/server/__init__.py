"""The server's side: joining clients, merging what they share, counting what it costs."""
