"""Optional CPU speed-ups. Each has a plain fallback, and tests hold the two equal."""
