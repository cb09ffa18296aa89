"""Compiled loops over rows; numba is imported here and in crypto's kernels only."""
