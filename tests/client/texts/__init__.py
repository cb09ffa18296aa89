"""Tests of text encoders."""
