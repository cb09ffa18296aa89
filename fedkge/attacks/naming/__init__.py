"""Which label a pseudonym stands for."""
