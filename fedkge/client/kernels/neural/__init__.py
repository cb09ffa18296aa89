"""Kernels of neural encoders and decoders."""
