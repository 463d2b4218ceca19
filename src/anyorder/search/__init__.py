"""Hypotheses and how they grow; nothing of text."""
