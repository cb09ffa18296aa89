"""DPKGE (Han et al., 2022)."""
