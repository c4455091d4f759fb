"""Cells, runs and machines: what became of them, and what they used."""
