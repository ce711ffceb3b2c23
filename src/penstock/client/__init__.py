"""Reads changes from a subscription server (`penstock serve`) over Arrow Flight; see docs/client.md.

with connect("127.0.0.1:8192", token="…") as server:
    for batch in server.subscribe("example", "billing"):
        for change in batch.changes:
            ...
        batch.acknowledge()
"""

from penstock.client.aio import AsyncServer, connect_async
from penstock.client.batches import Batch, TableBatch
from penstock.client.connection import Server, connect
from penstock.client.streams import Stream, TableStream

__all__ = [
    "AsyncServer",
    "Batch",
    "Server",
    "Stream",
    "TableBatch",
    "TableStream",
    "connect",
    "connect_async",
]
