"""Changes of tables as Arrow batches, read from the relay log without Spark (docs/changes.md)."""

from penstock.changes.reader import ChangeBatch, ChangeReader, Committed, Definitions, TableChanged, follow

__all__ = ["ChangeBatch", "ChangeReader", "Committed", "Definitions", "TableChanged", "follow"]
