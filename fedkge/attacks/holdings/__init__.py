"""Who holds how much of what: numbers of triples, guessed from how far rows move."""
