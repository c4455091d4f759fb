"""This machine: its cores, GPUs, memory and libraries, and what of it a rank may use."""
