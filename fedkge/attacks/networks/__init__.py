"""What released vertex rows tell of single edges: sensitivities, games between neighbouring networks."""
