"""The practice cluster: a real Slurm with four nodes on one Linux machine. See docs."""
