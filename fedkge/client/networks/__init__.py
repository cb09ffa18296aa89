"""Networks as matrices: where walks go, their factors, and what vertex rows are good for."""
