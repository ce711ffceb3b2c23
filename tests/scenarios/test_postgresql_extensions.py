"""Values of PostGIS and pgvector: those of the log, of snapshots and of the target are what SELECT shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.postgresql import LOGICAL, PgScenario, connected
from tests.sources.postgresql.pg_log import PgLog, table_of

from penstock.model.schema import TableId
from penstock.testing import artifacts, debian
from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class WithExtensions(PostgreSqlServer):
    """PostgreSQL 18 with Debian's PostGIS and pgvector, which need Debian's libraries."""

    def __init__(self, settings: dict[str, str]) -> None:
        def unpack(target: Path) -> None:
            debian.unpack_packages(["postgresql-18-postgis-3", "postgresql-18-pgvector"], target, suite="sid")

        self._packages = artifacts.entry("postgresql-18-extensions-sid", unpack)
        super().__init__(settings=settings, version=18)

    def command(self) -> tuple[list[str], dict[str, str]]:
        plain = self._binaries()

        def unpack(target: Path) -> None:
            shutil.copytree(plain, target, dirs_exist_ok=True, symlinks=True)
            for name, of_package, of_server in (
                ("postgis*", "share/postgresql/18/extension", "share/postgresql/extension"),
                ("vector*", "share/postgresql/18/extension", "share/postgresql/extension"),
                ("postgis*.so", "lib/postgresql/18/lib", "lib/postgresql"),
                ("vector.so", "lib/postgresql/18/lib", "lib/postgresql"),
            ):
                for path in (self._packages / "usr" / of_package).glob(name):
                    shutil.copy2(path, target / of_server / path.name)
            extensions = target / "share/postgresql/extension"
            # Debian's own installation makes this name.
            shutil.copy2(extensions / "postgis-3.control", extensions / "postgis.control")

        both = artifacts.entry(f"{self._release}-extensions", unpack)
        argv, environment = super().command()
        place = argv.index(str(plain / "bin" / "postgres"))
        program = debian.program(
            self._packages, str(both / "bin" / "postgres"), libraries=[str(both / "lib")]
        )
        return [*argv[:place], *program, *argv[place + 1 :]], environment


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with WithExtensions(LOGICAL) as server:
        yield server


ROWS = """SELECT {first} + i, ST_SetSRID(ST_MakePoint(i, i / 3.0), 4326), ST_Buffer(ST_MakePoint(i, 2), 1),
    ST_GeogFromText('POINT(' || i % 90 || ' 1.5)'), ST_Force3DZ(ST_MakePoint(i, 1)),
    ('[' || i || ',0.1,-2.5e-7]')::vector, ('[' || i % 9 || ',0.1]')::halfvec,
    ('{{1:1.5,3:' || i || '}}/5')::sparsevec
    FROM generate_series(1, 40) i"""


def test_values_are_those_of_select(
    server: PostgreSqlServer, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    case = PgScenario(server, "places", tmp_path, spark, lake_root, snapshot={"chunk_rows": 10})
    case.execute(
        "CREATE EXTENSION postgis SCHEMA public", "CREATE EXTENSION vector SCHEMA public",
        "SET search_path = places, public",
        """CREATE TABLE places (
            id int PRIMARY KEY, at geometry(Point, 4326), area geometry, globe geography,
            high geometry(PointZ), v vector(3), h halfvec(2), s sparsevec(5))""",
        f"INSERT INTO places {ROWS.format(first=0)}",
        "CREATE TABLE vectors (id int PRIMARY KEY, v vector)",
        "INSERT INTO vectors VALUES (1, '[1,2]'), (2, NULL)",
    )  # fmt: skip
    with case.running() as pipeline:
        case.drain(pipeline)
        case.assert_equal("places", "vectors")
        case.execute(
            f"INSERT INTO places {ROWS.format(first=100)}",
            "UPDATE places SET area = NULL, v = '[0,0,1]' WHERE id % 4 = 0",
            "UPDATE places SET id = id + 1000 WHERE id % 5 = 0",
            "UPDATE vectors SET v = '[3]' WHERE id = 2",
            "DELETE FROM places WHERE id % 7 = 0",
        )
        case.drain(pipeline)
        case.assert_equal("places", "vectors")
        verified = case.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    case.sql.close()


def test_the_binary_form_of_vectors_is_known(server: PostgreSqlServer, tmp_path: Path) -> None:
    """Then the log is not sent as text because of them."""
    with connected(server) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        connection.execute("CREATE TABLE public.bare (id int PRIMARY KEY, v vector, w vector(3)[])")
        connection.execute('CREATE PUBLICATION "all" FOR TABLE public.bare')
        log = PgLog(server, connection, "bare")
        try:
            connection.execute("INSERT INTO bare VALUES (1, '[1,-2.5e-7,0.1]', ARRAY['[1,2,3]'::vector])")
            connection.execute("INSERT INTO bare VALUES (2, NULL, NULL), (3, '[3e38]', '{}')")
            segment = log.segment(tmp_path / "0.pgoutput", binary=True)
        finally:
            log.close()
        table = table_of(connection, TableId("public", "bare"))
        assert all(column.reads_binary for column in table.columns)
        rows = {row["id"]: (row["v"], row["w"]) for row in segment.changes(table.schema.to_json())}
        shown = connection.execute("SELECT id, v::text, array_to_json(w::text[])::text FROM bare").fetchall()
    assert rows == {id: (v, w) for id, v, w in shown}
