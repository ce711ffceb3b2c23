"""Penstock and its peers on the same log. `make bench` runs `bench.run`."""
