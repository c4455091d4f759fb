"""Sets of runs against each other: techniques, batches, libraries, two measurements."""
