"""From files to batches: readers, tokenised splits, their orders, and padded batches."""
