"""What training reaches: accuracy, targets, and by which batch, rate and number of images."""
