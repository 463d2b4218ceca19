"""Score trained models, compare them, and report the results."""
