"""Tensors in, tensors out: the models and their losses."""
