"""Membership inference on one model that somebody trained and published."""
