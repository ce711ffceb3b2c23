"""Few rows that are updated very often, one row a transaction, as sysbench's update tests do it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.workload import DATABASE, Counts, Workload, run, thousands
from penstock.testing.servers import MySqlServer
from penstock.testing.workload import numbers

_TABLE = f"{DATABASE}.sbtest1"
_ROWS = 100
_UPDATES = 400_000

_UPDATER = f"""CREATE PROCEDURE {DATABASE}.update_rows(IN first INT, IN last INT)
BEGIN
  DECLARE n INT DEFAULT first;
  SET @changed = 0;
  WHILE n <= last DO
    IF n % 2 = 0 THEN
      UPDATE {_TABLE} SET k = k + 1 WHERE id = 1 + CRC32(n) % {_ROWS};
    ELSE
      UPDATE {_TABLE} SET c = CONCAT(SHA1(n), '-', SHA1(-n)) WHERE id = 1 + CRC32(n) % {_ROWS};
    END IF;
    SET @changed = @changed + ROW_COUNT();
    SET n = n + 1;
  END WHILE;
  SELECT @changed;
END"""


class HotRows(Workload):
    name = "hot_rows"
    about = f"{_ROWS} rows of sysbench's table updated again and again, one row a transaction"

    def definitions(self, scale: float) -> Iterable[str]:
        columns = "id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL"
        return [f"CREATE TABLE {_TABLE} ({columns}, KEY k (k))", _UPDATER]

    def compared(self, scale: float) -> dict[str, Sequence[str]]:
        return {"sbtest1": ("id", "k", "c", "pad")}

    def write(self, server: MySqlServer, scale: float) -> Counts:
        row = "n, n, SHA1(n), MD5(n)"
        inserts = run(server, [f"INSERT INTO {_TABLE} SELECT {row} FROM {numbers(_ROWS, 1)}"])
        [[updates]] = server.query(f"CALL {DATABASE}.update_rows(1, {thousands(scale, _UPDATES)})")
        return Counts(inserts, int(updates), 0)
