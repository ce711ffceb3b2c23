"""Writes small transactions at an even pace until its input ends. Arguments: host port user password
changes-per-second. It then says how many transactions there were, and the rows of each."""

from __future__ import annotations

import json
import sys
import threading
import time

from bench.latency.changes import ROWS_BEFORE, TABLE
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import MySqlOptions

_ROWS = 10


def main() -> None:
    host, port, user, password, per_second = sys.argv[1:]
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    options = MySqlOptions(host=host, port=int(port), user=user, password=password, tls="disabled")
    connection = connect(options)
    transactions, due, pause = 0, time.monotonic(), _ROWS / float(per_second)
    with connection.cursor() as cursor:
        cursor.execute("SET autocommit = 1")
        while not ended.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            first = ROWS_BEFORE + transactions * _ROWS
            rows = ", ".join(f"({id}, 0, 0, 'row {id}')" for id in range(first, first + _ROWS))
            cursor.execute(f"INSERT INTO {TABLE} VALUES {rows}")
            transactions += 1
            due += pause
    connection.close()
    print(json.dumps({"transactions": transactions, "rows": _ROWS}), flush=True)


if __name__ == "__main__":
    main()
