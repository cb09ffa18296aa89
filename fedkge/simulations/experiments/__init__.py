"""Experiment files: the embedded one, a starter for one's own data, their reference and completion."""
