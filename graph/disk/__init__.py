"""What is written, and the disk that takes no more of it."""
