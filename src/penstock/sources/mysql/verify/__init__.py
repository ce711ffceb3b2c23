"""The server's half of `penstock verify`."""
