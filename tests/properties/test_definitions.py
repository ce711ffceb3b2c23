"""Tables whose definitions change by chance between rows written by chance, through a whole pipeline, on each
server of the matrix: at the end every table has the columns and the rows of the source."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_decode import without_zero_dates
from tests.properties import definitions

from penstock.testing import oracle, servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = 6
ROUNDS = 90
ROWS = 120


def make(database: servers.Database, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(TABLES):
        kinds = ", ".join(
            f"c{place} {chance.choice(definitions.TYPES)}" for place in range(chance.randint(2, 6))
        )
        database.execute(f"CREATE TABLE t{number} (id INT NOT NULL, {kinds}, PRIMARY KEY (id))")
        definitions.write(database, f"t{number}", chance, first=0, rows=ROWS)


def scales_of(database: servers.Database, table: str) -> dict[str, int | None]:
    """Digits behind the point of numbers, in the source's types."""
    rows = database.query(
        "SELECT COLUMN_NAME, NUMERIC_SCALE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
        "AND TABLE_NAME = %s",
        (database.name, table),
    )
    return {str(name): None if scale is None else int(scale) for name, scale in rows}


def narrowed(value: Any, scale: int | None) -> Any:
    """A number of a column that is wider at the target (`schema.narrowing: keep`), as the source has it; any
    other digit stays and is a difference."""
    if not isinstance(value, Decimal) or scale is None:
        return value
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=Context(prec=76))
    return rounded if rounded == value else value


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_tables_that_change_by_chance_end_with_the_sources_columns_and_rows(
    flavor_database: servers.Database, seed: int, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    database = flavor_database
    make(database, seed)
    chance = random.Random(seed * 1000)
    case = Scenario(database, database.name, tmp_path, spark, lake_root)
    log = tmp_path / "statements.sql"
    done = 0
    with case.running() as pipeline, log.open("w", encoding="utf-8") as statements:
        case.drain(pipeline)
        for number in range(1, ROUNDS + 1):
            table = chance.choice(definitions.tables_of(database))
            for statement in definitions.a_change(database, table, chance):
                done += definitions.attempt(database, statement)
                statements.write(f"{statement};\n")
            for name in definitions.tables_of(database):
                if name == table or chance.random() < 0.2:
                    definitions.write(database, name, chance, first=number * ROWS, rows=ROWS)
            if number == ROUNDS // 2:
                pipeline.kill("driver")
                pipeline.ensure_alive()
        case.drain(pipeline, restart=True)
        status = case.status()
    assert done > ROUNDS * 0.6
    found = {one["table"].partition(".")[2]: one for one in status["tables"]}
    for table in definitions.tables_of(database):
        name = f"{database.name}.{table}"
        assert found[table]["status"] == "live", (table, found[table], log.read_text("utf-8"))
        columns = oracle.columns_of(database, name)
        names = [column.name for column in columns]
        frame = case.target(table)
        assert [column for column in frame.columns if not column.startswith("_")] == names
        scales = scales_of(database, table)
        rows = ([narrowed(row[c], scales[c]) for c in names] for row in frame.toLocalIterator())
        arrived = oracle.canonical_rows(rows, columns)
        expected = oracle.sorted_rows(without_zero_dates(oracle.rows_of(database, name)), columns)
        difference = oracle.compare(expected, arrived)
        assert not difference, f"{table}: {difference}\n{log.read_text('utf-8')}"
