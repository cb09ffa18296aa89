"""What an adversary can do with a recorded view."""
