"""Settings of differential privacy chosen on public triples alone."""
