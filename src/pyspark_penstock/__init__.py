"""Spark looks for data sources in modules whose names begin with `pyspark_`. This one is of Penstock."""

from penstock.datasource.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
