"""Failures that are not ours alone (Spark's, a catalog's, a disk's, a bug's): what the user is told, and
where the rest is kept."""
