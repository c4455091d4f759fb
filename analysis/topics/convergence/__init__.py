"""What training reaches: accuracy, targets, noise, and what was really applied."""
