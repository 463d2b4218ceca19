"""Benchmarks of speed and memory, as ratios to a named baseline that is measured in the same run."""
