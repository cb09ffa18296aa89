"""What a simulation knows of its clients' scores, and no server of a deployment would."""
