"""Changes of tables, read from the relay log without Spark (docs/changes.md)."""

from penstock.changes.log_order import LogOrderReader, Message, Transaction
from penstock.changes.opening import follow
from penstock.changes.reader import ChangeBatch, ChangeReader, Committed, Definitions, TableChanged

__all__ = [
    "ChangeBatch",
    "ChangeReader",
    "Committed",
    "Definitions",
    "LogOrderReader",
    "Message",
    "TableChanged",
    "Transaction",
    "follow",
]
