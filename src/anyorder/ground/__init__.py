"""What everything stands on: text and tokens, insertions, settings, files, errors."""
