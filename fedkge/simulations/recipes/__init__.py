"""Studies of published papers, by name: each returns a tidy frame with the published figures beside ours."""
