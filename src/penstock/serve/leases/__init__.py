"""Several subscription servers that share destinations through an object store."""
