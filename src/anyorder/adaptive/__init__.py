"""Orders that the model finds: section 4.2 of the paper."""
