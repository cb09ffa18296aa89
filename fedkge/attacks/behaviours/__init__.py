"""Malicious clients: what they do around the honest client."""
