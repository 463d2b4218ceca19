"""Algorithm 1 of the paper, step by step: hypotheses, searches and constraints; nothing of text."""
