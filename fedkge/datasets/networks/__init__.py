"""Networks: graphs whose edges have no kinds, and whose vertices may have classes."""
