"""PostgreSQL as a source, beside others who read it: `make bench PARTS=postgres`."""
