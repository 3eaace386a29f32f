"""What readers say of answers: taken, shown to who said it, and deleted."""
