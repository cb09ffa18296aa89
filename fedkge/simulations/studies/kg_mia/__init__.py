"""Membership inference on knowledge graphs: tables 3, 5, 6 and 7 of Wang et al. (2021), in per cent.

FinKG was never published and is left out.
"""
