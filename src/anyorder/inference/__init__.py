"""A trained model in use: text in, text out."""
