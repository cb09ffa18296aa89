"""Private training of models whose entity rows are made one by one from what is public, such as texts."""
