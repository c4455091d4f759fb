"""One start of a cell on one rank: world, data, parts, training, record."""
