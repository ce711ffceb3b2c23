"""Where clients connect: Canal's protocol, HTTP and Arrow Flight."""
