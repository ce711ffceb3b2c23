"""Canal's own Java client against the subscription server."""
