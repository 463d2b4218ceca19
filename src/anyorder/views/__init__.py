"""Pictures, pages, tables and texts that people look at."""
