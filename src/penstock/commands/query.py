"""`penstock query FILE SQL`: a look at the target without setting up Spark by hand."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock import config as configuration
from penstock.commands.status import describe
from penstock.state import StateStore


def query(file: Path, sql: str, *, limit: int, as_json: bool) -> None:
    from penstock.spark import query as spark_query

    config = configuration.load(file)
    describe(config)
    state = StateStore(config.state, read_only=True)
    try:
        tables = [table for table, known in state.tables().items() if known.last_epoch > 0]
        names, rows = spark_query.query(config, state.uuid, tables, sql, limit)
    finally:
        state.close()
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False))
        return
    table = Table(*names)
    for row in rows:
        table.add_row(*["NULL" if value is None else str(value) for value in row])
    Console().print(table)
