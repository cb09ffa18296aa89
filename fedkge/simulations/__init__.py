"""What people run: the command line, and later experiments, engines, runs and reports."""
