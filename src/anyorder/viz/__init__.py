"""Traces, animations, relation matrices and charts."""
