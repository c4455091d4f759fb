"""Whether ranks could train here: a short job of the same launch line, before any cell."""
