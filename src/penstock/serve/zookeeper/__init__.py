"""Several subscription servers that share destinations through ZooKeeper, in Canal's nodes."""
