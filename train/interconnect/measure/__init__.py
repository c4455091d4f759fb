"""Who sends to whom, and what arrives: the coordinator, its agents, and their streams."""
