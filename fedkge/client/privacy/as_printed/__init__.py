"""Mechanisms as papers print them, to compare with: their ε is a claim."""
