"""From the source's commit to the target: `make bench PARTS=latency`."""
