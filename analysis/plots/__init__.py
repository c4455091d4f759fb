"""What a figure is, and the pictures that topics draw; none knows a topic."""
