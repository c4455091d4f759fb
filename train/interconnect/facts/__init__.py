"""What a node says of itself: processor, network, GPUs, software."""
