"""Knowledge-graph reconstruction: entities, relations and triples out of embeddings."""
