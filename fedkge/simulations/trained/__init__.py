"""What a finished run leaves to use: models, predictions, exports."""
