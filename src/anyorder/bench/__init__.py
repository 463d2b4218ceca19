"""Benchmarks: always a ratio against a named baseline, measured side by side in one run."""
