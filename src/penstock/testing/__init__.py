"""Private servers, a workload and an oracle, for tests, the demo and benchmarks."""
