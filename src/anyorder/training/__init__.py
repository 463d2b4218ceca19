"""From a recipe to a run folder."""
