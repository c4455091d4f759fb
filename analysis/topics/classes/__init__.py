"""What each class of images got."""
