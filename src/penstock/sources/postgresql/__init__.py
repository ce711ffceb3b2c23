"""PostgreSQL as a source: its log by the output plugin `pgoutput`, and its catalog."""
