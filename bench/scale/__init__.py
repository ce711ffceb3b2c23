"""Much of everything, one file for each thing: `make bench PARTS=scale`."""
