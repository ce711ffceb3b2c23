"""A client reads the whole log through a subscription server. Arguments: tail-table command of the server.

What is measured is the server's CPU time, its receiver included, from when it listens until the client has
the first row of the tail. What the client takes does not count: it is the same for all servers.
"""

from __future__ import annotations

import json
import sys
import time

from bench.serve import server
from bench.serve.canal_client import ROW, Client, entries, kind_of

_SIZE = 5000


def main() -> None:
    tail = sys.argv[1].encode()
    with server.running(sys.argv[2:]) as (address, usage):
        began = time.monotonic()
        rows = _read(Client(address, "1001"), tail)
        wall_s, cpu_s = time.monotonic() - began, usage.cpu_s
    report = {
        "row_entries": rows, "changes": rows, "wall_s": wall_s, "cpu_s": cpu_s, "rss_mb": usage.rss_mb,
        "receiver_rss_mb": usage.children_rss_mb,
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def _read(client: Client, tail: bytes) -> int:
    """The number of entries with rows before the tail."""
    rows = 0
    while True:
        batch_id, body = client.get(_SIZE)
        if batch_id == -1:
            continue
        found = entries(body)
        at_end = tail in body
        for entry in found:
            if kind_of(entry) == ROW:
                if at_end and tail in entry:
                    return rows
                rows += 1
        client.acknowledge(batch_id)


if __name__ == "__main__":
    main()
