"""A program: a pipeline with Spark and a real sink follows a script, in a process without MySQL.

`python -m tests.scripted.whole_pipeline FOLDER SINK` prints JSON: the rows of the targets, and the modules of
other sources that the process has loaded.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.scripted.script import AddColumn, Definition, Delete, Drop, Insert, Transaction, Update, column
from tests.scripted.server import Server

from penstock import Pipeline
from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.model.schema import TableId, TableSchema
from penstock.state import StateStore

SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A JVM that lives for half a minute spends most of it compiling; the first compiler alone is faster then."""
ORDERS, LINES = TableId("shop", "orders"), TableId("shop", "lines")


def table(name: TableId) -> TableSchema:
    columns = (column("id", "bigint", nullable=False), column("note", "varchar", length=20))
    return TableSchema(name, columns, ("id",))


BEFORE: tuple[Transaction | Definition, ...] = (
    Transaction(*(Insert(ORDERS, (key, "old")) for key in range(1, 7))),
    Transaction(Insert(LINES, (1, "line"))),
)
WHILE_IT_IS_READ = (
    Transaction(Update(ORDERS, 1, (1, "changed")), Delete(ORDERS, 2)),
    Transaction(Insert(ORDERS, (7, "new")), Update(ORDERS, 3, (8, "moved"))),
)
BETWEEN_TWO_RUNS: tuple[Transaction | Definition, ...] = (
    AddColumn(ORDERS, column("colour", "varchar", length=100)),
    Transaction(Update(ORDERS, 4, (4, "old", "red")), Insert(ORDERS, (9, None, "blue"))),
    Drop(LINES),
    Transaction(Delete(ORDERS, 5)),
)
"""After all of it, `ROWS` are the rows of `ORDERS`."""
ROWS = [
    [1, "changed", None],
    [4, "old", "red"],
    [6, "old", None],
    [7, "new", None],
    [8, "moved", None],
    [9, None, "blue"],
]


def config_of(folder: Path, sink: str, server: Server) -> PipelineConfig:
    return configuration.parse(
        {
            "name": "script",
            "source": {"type": "script", "server": server.address},
            "tables": ["shop.*"],
            "sink": {"type": sink, "path": str(folder / "lake")},
            "state": str(folder / "state"),
            "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED},
        }
    )


def rows_of(config: PipelineConfig) -> list[Any]:
    from penstock.spark.query import query

    with closing(StateStore(config.state, read_only=True)) as state:
        names, rows = query(config, state.uuid, [ORDERS], "SELECT * FROM orders ORDER BY _sequence, id", 1000)
    return [dict(zip(names, row, strict=True)) for row in rows]


def main(folder: Path, sink: str) -> None:
    server = Server({one: table(one) for one in (ORDERS, LINES)})
    config = config_of(folder, sink, server)
    server.meanwhile[ORDERS] = list(WHILE_IT_IS_READ)
    for items in (BEFORE, BETWEEN_TWO_RUNS):
        for item in items:
            server.run(item)
        Pipeline(config).run(once=True)
    others = [name for name in sys.modules if name.startswith(("penstock.sources.mysql", "pymysql"))]
    print(json.dumps({"rows": rows_of(config), "others": others}, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
