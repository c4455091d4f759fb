"""One start of a cell on one rank: world, data, parts, training, and its record or error."""
