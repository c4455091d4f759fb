"""How training went: what was really applied, its noise, and what went on inside the network."""
