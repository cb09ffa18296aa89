"""FedR (Zhang et al., 2022)."""
