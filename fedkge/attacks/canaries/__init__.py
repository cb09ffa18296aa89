"""Canary audits: how much privacy a training mechanism is proven to lack."""
