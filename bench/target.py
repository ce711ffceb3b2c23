"""Is what a pipeline has made of a workload equal to the source? Asked of MySQL and of Spark."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import measure, workload
from bench.log import BenchLog
from bench.measure import RunFailed
from penstock.testing.servers import MySqlServer

_TABLES_AT_ONCE = 100
"""In one question to Spark, which plans a longer one badly."""


def check(log: BenchLog, file: Path) -> None:
    compare(log.server, log.workload.compared(log.scale), file)


def compare(server: MySqlServer, tables: Mapping[str, Sequence[str]], file: Path) -> None:
    """Row count and an order-independent checksum of each table, over the text of some columns, computed by
    MySQL and by Spark; raises `RunFailed` where they differ."""
    named = list(tables.items())
    for low in range(0, len(named), _TABLES_AT_ONCE):
        part = named[low : low + _TABLES_AT_ONCE]
        source = " UNION ALL ".join(at_source(name, texts) for name, texts in part)
        target = " UNION ALL ".join(at_target(name, texts) for name, texts in part)
        expected = {str(name): (int(rows), int(total)) for name, rows, total in server.query(source)}
        found = {row["t"]: (int(row["n"]), int(row["checksum"])) for row in _asked(file, target)}
        if found != expected:
            name = next(name for name in expected if found.get(name) != expected[name])
            raise RunFailed(
                f"{name}: the target holds {found.get(name)} (rows, checksum), the source {expected[name]}"
            )


def at_source(table: str, texts: Sequence[str]) -> str:
    columns = ", ".join(f"COALESCE({text}, '~')" for text in texts)
    checksum = f"COALESCE(SUM(CRC32(CONCAT_WS('|', {columns}))), 0)"
    return f"SELECT '{table}', COUNT(*), {checksum} FROM {workload.DATABASE}.{table}"


def at_target(table: str, texts: Sequence[str]) -> str:
    columns = ", ".join(f"coalesce(cast({text} AS string), '~')" for text in texts)
    checksum = f"coalesce(sum(crc32(encode(concat_ws('|', {columns}), 'UTF-8'))), 0)"
    return f"SELECT '{table}' AS t, count(*) AS n, {checksum} AS checksum FROM {table}"


def _asked(file: Path, sql: str) -> list[dict[str, str]]:
    answer = subprocess.run(
        measure.program("penstock", "query", file, sql, "--json"),
        env=measure.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode:
        raise RunFailed(f"the target cannot be read: {answer.stderr.strip()[-500:]}")
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
