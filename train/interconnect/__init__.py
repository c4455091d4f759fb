"""The network between nodes, measured and judged: the phases of `make interconnect`."""
