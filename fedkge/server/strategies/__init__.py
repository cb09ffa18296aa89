"""Strategies, one module a family; each imports the contract and nothing else of the server."""
