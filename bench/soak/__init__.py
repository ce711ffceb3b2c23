"""A pipeline under load for a long time, with everything that may happen to it: `make bench PARTS=soak`."""
