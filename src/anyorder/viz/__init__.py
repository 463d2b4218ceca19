"""Show how sentences are written: traces, animations, replay pages, relation matrices and charts."""
