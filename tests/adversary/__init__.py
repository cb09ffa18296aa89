"""Attackers that must fail: each speaks with the honest ClientApp, as a server or a client could."""
