"""The changes whose latency is measured: small transactions at an even pace, on a table that stays small."""

from __future__ import annotations

import threading
import time
from typing import Any

from penstock.sources.kind import SourceOptions
from penstock.sources.mysql import connection as mysql
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.postgresql import connection as postgresql
from penstock.sources.postgresql.options import PostgreSqlOptions

TABLE = "bench.live"
DEFINITION = (
    f"CREATE TABLE {TABLE} (id BIGINT NOT NULL PRIMARY KEY, sent_us BIGINT NOT NULL, v INT NOT NULL, "
    "note VARCHAR(40) NOT NULL)"
)
TEXTS = ("id", "sent_us", "v", "note")
"""What a target is compared by."""
ROWS_BEFORE = 10_000
"""In the table when the first change comes, with the ids from 0 on."""
TRANSACTIONS_PER_S = 200
INSERTS, UPDATES, DELETES = 2, 2, 1
"""Of one transaction."""
CHANGES_PER_S = TRANSACTIONS_PER_S * (INSERTS + UPDATES + DELETES)


def connect(source: SourceOptions) -> Any:
    """A connection that commits each statement."""
    if isinstance(source, MySqlOptions):
        return mysql.connect(source)
    assert isinstance(source, PostgreSqlOptions)
    return postgresql.connect(source)


class Changes:
    """Writes from when it is made to `stop`, in a thread of its own. Each transaction has a time at which it
    is due; one that is late is sent at once, so that a slow moment is made up for."""

    def __init__(self, source: SourceOptions) -> None:
        self.transactions = 0
        self.late_s_max = 0.0
        self.cpu_s = 0.0
        self._source = source
        self._stopped = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
        if self._failed:
            raise self._failed[0]

    @property
    def counts(self) -> dict[str, int]:
        return {
            "inserts": self.transactions * INSERTS,
            "updates": self.transactions * UPDATES,
            "deletes": self.transactions * DELETES,
        }

    def _run(self) -> None:
        connection = connect(self._source)
        cpu_began, due = time.thread_time(), time.monotonic()
        try:
            with connection.cursor() as cursor:
                while not self._stopped.wait(max(0.0, due - time.monotonic())):
                    self.late_s_max = max(self.late_s_max, time.monotonic() - due)
                    self._transaction(cursor)
                    self.transactions += 1
                    self.cpu_s = time.thread_time() - cpu_began
                    due += 1 / TRANSACTIONS_PER_S
        except BaseException as error:
            self._failed.append(error)
        finally:
            connection.close()

    def _transaction(self, cursor: Any) -> None:
        """Two new rows at the end, one row gone at the beginning, two neighbours between changed."""
        number, now_us = self.transactions, time.time_ns() // 1000
        oldest, new = number * DELETES, ROWS_BEFORE + number * INSERTS
        changed = oldest + 1 + number * 7919 % (new - oldest - UPDATES)
        rows = ", ".join(f"({id}, {now_us}, 0, 'row {id}')" for id in range(new, new + INSERTS))
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO {TABLE} VALUES {rows}")
        cursor.execute(
            f"UPDATE {TABLE} SET sent_us = {now_us}, v = v + 1 "
            f"WHERE id BETWEEN {changed} AND {changed + UPDATES - 1}"
        )
        cursor.execute(f"DELETE FROM {TABLE} WHERE id = {oldest}")
        cursor.execute("COMMIT")
