"""One optimizer step over all ranks, and what techniques plug into it."""
