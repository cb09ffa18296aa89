"""Was this triple trained on? Attacks that answer, and figures that say how well."""
