"""Reads a lake table with a program of others: `programs.py ENGINE FORMAT LOCATION`. Prints its rows as JSON,
or `{"refused": "…"}`. Runs in an environment of its own (`environment.py`), without Penstock.

LOCATION is the table's directory; for Iceberg, that of a Hadoop catalog, whose newest metadata file is looked
up. Rows are lists of texts, in the order of `ORDER BY` the first column."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


def newest_metadata(location: str) -> str:
    files = (Path(location) / "metadata").glob("v*.metadata.json")
    return str(max(files, key=lambda path: int(path.name.split(".")[0].removeprefix("v"))))


def pyiceberg(location: str) -> Iterable[tuple[Any, ...]]:
    table = (
        import_module("pyiceberg.table")
        .StaticTable.from_metadata(newest_metadata(location))
        .scan()
        .to_arrow()
    )
    return [tuple(row.values()) for row in table.to_pylist()]


def delta_rs(location: str) -> Iterable[tuple[Any, ...]]:
    library = import_module("deltalake")
    query = library.QueryBuilder().register("t", library.DeltaTable(location))
    found = import_module("pyarrow").table(query.execute("SELECT * FROM t").read_all())
    return [tuple(row.values()) for row in found.to_pylist()]


def duckdb(source: str, *extensions: str) -> Callable[[str], Iterable[tuple[Any, ...]]]:
    def read(location: str) -> Iterable[tuple[Any, ...]]:
        connection = import_module("duckdb").connect()
        import_extension = import_module("duckdb_extensions").import_extension
        for one in extensions:
            import_extension(one, con=connection)
            connection.execute(f"LOAD {one}")
        place = newest_metadata(location) if source == "iceberg_scan" else location
        rows: list[tuple[Any, ...]] = connection.execute(f"SELECT * FROM {source}('{place}')").fetchall()
        return rows

    return read


def chdb(source: str) -> Callable[[str], Iterable[tuple[Any, ...]]]:
    def read(location: str) -> Iterable[tuple[Any, ...]]:
        path = Path(location)
        os.chdir(path.parent)  # it reads only what is below its own directory
        place = path.name if source == "icebergLocal" else location
        said = str(import_module("chdb").query(f"SELECT * FROM {source}('{place}')", "JSONCompactEachRow"))
        return [tuple(json.loads(line)) for line in said.splitlines()]

    return read


ENGINES: dict[tuple[str, str], Callable[[str], Iterable[tuple[Any, ...]]]] = {
    ("pyiceberg", "iceberg"): pyiceberg,
    ("duckdb", "iceberg"): duckdb("iceberg_scan", "avro", "iceberg"),
    ("chdb", "iceberg"): chdb("icebergLocal"),
    ("delta-rs", "delta"): delta_rs,
    ("duckdb", "delta"): duckdb("delta_scan", "delta"),
    ("chdb", "delta"): chdb("deltaLakeLocal"),
}


def main(engine: str, kind: str, location: str) -> None:
    try:
        rows = list(ENGINES[engine, kind](location))
    except Exception as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"[:1000]}))
        return
    shown = [[None if value is None else str(value) for value in row] for row in rows]
    print(json.dumps(sorted(shown, key=lambda row: int(row[0]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
