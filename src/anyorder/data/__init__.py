"""Sequences of tokens, the orders to write them in, and batches of them."""
