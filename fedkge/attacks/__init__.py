"""What an adversary can do with what it received."""
