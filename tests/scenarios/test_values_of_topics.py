"""A pipeline from topics into a database: numbers without a precision, spans, and what is no number. What a
target cannot have parks its table for the reason that helps, and the others go on."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sources.debezium.messages import ID, Table, column, postgresql
from tests.sources.debezium.receiving import Topics
from tests.sources.debezium.test_translator import VARIABLE
from tests.sources.debezium.test_values_in_messages import number

from penstock.testing import servers
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import SHORT_LIVED

pytestmark = pytest.mark.slow


PARKED = {"public.longer", "public.nothing"}


def table(name: str) -> Table:
    columns = [
        ID, {**VARIABLE, "field": "num"}, column("much", "double"),
        column("span", "int64", "io.debezium.time.MicroDuration"),
    ]  # fmt: skip
    source = {"db": "shop", "schema": "public", "table": name}
    return Table("postgresql", columns, source=source, topic=f"shop.public.{name}")


def row(id: int, num: str, much: Any) -> dict[str, Any]:
    return {"id": id, "num": number(num), "much": much, "span": 5_400_500_000}


ROWS = {
    "kept": [row(1, "-12345678901234567890.50", "-Infinity"), row(2, "0.1000", 1.5)],
    "longer": [row(1, "0.125", 1.0)],
    "nothing": [row(1, "7", "NaN")],
}


def test_what_a_target_cannot_have_parks_its_table_alone(tmp_path: Path) -> None:
    database = tmp_path / "target.db"
    with servers.kafka() as cluster:
        topics = Topics(cluster.bootstrap)
        for name, rows in ROWS.items():
            made = table(name)
            topics.create(made.topic)
            topics.send(
                made.topic,
                [made.change("c", None, one, **postgresql(at, at)) for at, one in enumerate(rows, 1)],
            )
        file = tmp_path / "pipeline.yaml"
        document = {
            "name": "values",
            "source": {"type": "debezium", "bootstrap": cluster.bootstrap, "topics": "shop.public.*"},
            "tables": ["public.*"], "types": {"numeric_scale": 2},
            "sink": {"type": "jdbc", "url": f"sqlite:///{database}"},
            "state": str(tmp_path / "state"), "epoch": {"interval": "200ms"},
            "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED},
        }  # fmt: skip
        file.write_text(yaml.safe_dump(document))
        with RunningPipeline(file) as pipeline:

            def parked(status: dict[str, Any]) -> bool:
                return {one["table"] for one in status["tables"] if one["parked"]} == PARKED

            pipeline.wait_until(parked, "two parked tables", seconds=180)
            pipeline.wait_until(lambda _: len(rows_of(database)) == 2, "rows", seconds=60)
            made = table("kept")
            topics.send(made.topic, [made.change("c", None, row(3, "3", None), **postgresql(9, 9))])
            latest = pipeline.wait_until(lambda _: len(rows_of(database)) == 3, "a later row", seconds=60)
            assert pipeline.stop() == 0
    reasons = {one["table"]: str(one["parked"]) for one in latest["tables"]}
    assert "does not fit into DECIMAL(38,2)" in reasons["public.longer"] and "0.125" not in str(latest)
    assert "NaN, which SQLite cannot store" in reasons["public.nothing"]
    assert rows_of(database) == [
        (1, "-12345678901234567890.50", float("-inf"), "PT1H30M0.5S"), (2, "0.10", 1.5, "PT1H30M0.5S"),
        (3, "3.00", None, "PT1H30M0.5S"),
    ]  # fmt: skip


def rows_of(database: Path) -> list[Any]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as session:
        try:
            return session.execute("SELECT id, num, much, span FROM public_kept ORDER BY id").fetchall()
        except sqlite3.OperationalError:
            return []
