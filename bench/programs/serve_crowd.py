"""Subscribers that read and acknowledge everything. Arguments: address subscribers. It says when they are
connected, and at the end of its input how many transactions each has got."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from bench.serve.canal_client import Client

_SIZE = 5000
_END = b"\x10\x03"
"""The type of an entry that ends a transaction. Counting it costs less than reading entries."""


def _read(client: Client, ended: threading.Event) -> int:
    transactions = 0
    while True:
        batch_id, body = client.get(_SIZE)
        if batch_id == -1:
            if ended.is_set():
                return transactions
            continue
        client.acknowledge(batch_id)
        transactions += body.count(_END)


def main() -> None:
    address, subscribers = sys.argv[1], int(sys.argv[2])
    clients = [Client(address, f"crowd-{number}") for number in range(subscribers)]
    ended = threading.Event()
    print(json.dumps({"connected": subscribers}), flush=True)
    with ThreadPoolExecutor(max(1, subscribers)) as pool:
        reading = [pool.submit(_read, client, ended) for client in clients]
        sys.stdin.read()
        ended.set()
        found = [one.result() for one in reading]
    print(json.dumps({"transactions": found}), flush=True)


if __name__ == "__main__":
    main()
