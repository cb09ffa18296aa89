"""Membership inference attacks on knowledge graphs (Wang et al., 2021)."""
