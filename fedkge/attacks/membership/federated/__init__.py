"""Membership inference from what an adversary of a federation received."""
