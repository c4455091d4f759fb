"""How throughput grows with ranks, and where the rest goes."""
