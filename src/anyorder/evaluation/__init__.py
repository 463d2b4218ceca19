"""Score, compare and report."""
