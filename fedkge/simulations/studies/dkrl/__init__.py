"""Entities that have descriptions: Ghanvatkar and Wei (2021), DKRL trained in private, and what it builds on.

Their splits are not to be had: ours are drawn by the same rule (BLP's), and text encoders that cannot be had
are named with what stands in for them.
"""
