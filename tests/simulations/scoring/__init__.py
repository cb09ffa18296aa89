"""What a simulation knows of its clients' scores."""
