"""Collectives, by Horovod and by plain sockets, timed and checked."""
