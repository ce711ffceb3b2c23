"""Penstock's own measured programs; each runs in a process of its own and prints its report
(`bench.measure`)."""
