"""Studies of Ghanvatkar and Wei (2021), and of the papers on texts that they build on."""
