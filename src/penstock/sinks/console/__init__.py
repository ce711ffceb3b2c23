"""Changes as JSON lines on standard output."""
