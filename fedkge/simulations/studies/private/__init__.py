"""What confidential triples are worth under differential privacy: centrally, and in a federation."""
