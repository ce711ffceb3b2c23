"""Reads changes from a subscription server (`penstock serve`) over Arrow Flight; see docs/client.md.

with connect("127.0.0.1:8192", token="…") as server:
    for batch in server.subscribe("example", "billing"):
        for change in batch.changes:
            ...
        batch.acknowledge()
"""

from penstock.client.aio import AsyncServer, connect_async
from penstock.client.batches import Batch
from penstock.client.connection import Server, Stream, connect

__all__ = ["AsyncServer", "Batch", "Server", "Stream", "connect", "connect_async"]
