"""Runs: engines, folders, comparisons, trackers."""
