"""Drawing on images, and writing frames as video."""
