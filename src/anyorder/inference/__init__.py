"""A trained model in use: sources in, hypotheses out.

`generator.Generator` is the public class. Behind it, `loaded_model` works on lists of sources: `inputs`
encodes them, `generation`, `completion` and `scoring` do one task each, and `reranking` lets several models
choose together.
"""
