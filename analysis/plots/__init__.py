"""The pictures that topics draw; each function returns one SVG, and none knows a topic."""
