"""Which node, link or uplink is slow: the decisions of a tournament."""
