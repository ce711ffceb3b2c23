"""`penstock query FILE SQL`: runs SQL over the targets, without setting up Spark by hand."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rich.table import Table

from penstock import config as configuration
from penstock.commands.terminal import cell, console, say_json
from penstock.commands.working import Working
from penstock.runtime.describe import ensure_run
from penstock.state import StateStore


def query(file: Path, sql: str, *, limit: int, as_json: bool) -> None:
    """Prints the result of `sql`, at most `limit` rows."""
    from penstock.spark import query as spark_query

    config = configuration.load(file)
    ensure_run(config)
    with Working("opening the state"), closing(StateStore(config.state, read_only=True)) as state:
        tables = [table for table, known in state.tables().items() if known.last_epoch > 0]
        names, rows = spark_query.query(config, state.uuid, tables, sql, limit)
    if as_json:
        for row in rows:
            found = dict(zip(names, row, strict=True))
            say_json(found, plain=True)
        return
    table = Table()
    for name in names:
        table.add_column(cell(name))
    for row in rows:
        table.add_row(*["NULL" if value is None else cell(value) for value in row])
    console().print(table)
