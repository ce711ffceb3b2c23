"""Each setting of a catalog and its store, wrong once, against real servers: one paragraph with the cure.

`test_catalogs.py` runs this in a session whose class path has what the catalogs need (`--lake-in jdbc-s3`).
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.lake_catalogs import catalog

from penstock.sinks import registry
from penstock.sinks.kind import Probed
from penstock.testing import servers
from penstock.testing.servers.catalogs import Nessie
from penstock.testing.servers.s3 import Moto, S3Proxy, S3Server

CANARY = "hunter2-9137"


class _Answers(BaseHTTPRequestHandler):
    """Answers as three servers do: a web site, an identity provider that knows no client, and the S3 of
    another region."""

    def do_GET(self) -> None:
        self._answer(200, "text/html", "<!doctype html><title>hello</title>")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        refusal = {"error": "invalid_client", "error_description": "Client authentication failed"}
        self._answer(401, "application/json", json.dumps(refusal))

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(
            301,
            "application/xml",
            "<Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must be "
            "addressed using the specified endpoint. Please send all future requests to this endpoint."
            "</Message><Bucket>lake</Bucket><Endpoint>s3.eu-west-1.amazonaws.com</Endpoint></Error>",
        )

    def _answer(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *ignored: Any) -> None:
        pass


@contextmanager
def _other_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class World:
    """The servers that work. Each is started when a case needs it."""

    folder: Path
    closing: ExitStack

    def _store(self, server: S3Server) -> S3Server:
        self.closing.enter_context(server)
        server.make_bucket("lake")
        return server

    @cached_property
    def moto(self) -> S3Server:
        return self._store(Moto())

    @cached_property
    def strict(self) -> S3Server:
        """It checks keys and signatures."""
        return self._store(S3Proxy())

    @cached_property
    def read_only(self) -> S3Server:
        return self._store(S3Proxy(read_only=True))

    @cached_property
    def nessie(self) -> Nessie:
        return self.closing.enter_context(Nessie(self.moto, "lake"))

    @cached_property
    def mysql(self) -> servers.MySqlServer:
        return self.closing.enter_context(servers.MySqlServer())

    @cached_property
    def other(self) -> str:
        return self.closing.enter_context(_other_server())

    @cached_property
    def nobody(self) -> str:
        """A port at which nobody listens."""
        with socket.create_server(("127.0.0.1", 0)) as found:
            return f"127.0.0.1:{found.getsockname()[1]}"

    def rest(self, **options: Any) -> dict[str, Any]:
        return {"type": "rest", "warehouse": "wh", "properties": self.moto.iceberg_properties, **options}

    def jdbc(self, store: S3Server | None = None, **options: Any) -> dict[str, Any]:
        """A catalog on SQLite. Properties in `options` change those of the store; None removes one."""
        store = store or self.strict
        changed = {**store.iceberg_properties, **options.pop("properties", {})}
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}",
            "warehouse": "s3://lake/wh",
            "properties": {name: value for name, value in changed.items() if value is not None},
            **options,
        }

    def in_mysql(self, database: str, **options: Any) -> dict[str, Any]:
        address = f"jdbc:mysql://127.0.0.1:{self.mysql.port}/{database}"
        return self.jdbc(uri=f"{address}?allowPublicKeyRetrieval=true&sslMode=DISABLED", **options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as closing:
        yield World(tmp_path_factory.mktemp("world"), closing)


NO_KEYS = {"s3.access-key-id": None, "s3.secret-access-key": None}

CASES: dict[str, tuple[Callable[[World], dict[str, Any]], list[str]]] = {
    # REST
    "nobody listens": (
        lambda w: w.rest(uri=f"http://{w.nobody}/iceberg"), ["cannot be reached: http://127.0.0.1", "address"]
    ),
    "unknown host": (
        lambda w: w.rest(uri="http://no-such-host.invalid"), ["no-such-host.invalid cannot be resolved"]
    ),
    "another server": (lambda w: w.rest(uri=w.moto.url), ["no Iceberg catalog there", "`uri`", "`/v1`"]),
    "a web site": (lambda w: w.rest(uri=w.other), ["does not answer as an Iceberg catalog", "`uri`"]),
    "wrong path": (
        lambda w: w.rest(uri=w.nessie.uri.replace("iceberg", "lake")), ["no Iceberg catalog there", "`uri`"]
    ),
    "v1 in the path": (lambda w: w.rest(uri=f"{w.nessie.uri}/v1"), ["no branch v1", "`/v1` is not part"]),
    "no TLS": (
        lambda w: w.rest(uri=w.nessie.uri.replace("http:", "https:")), ["does not speak TLS", "http://"]
    ),
    "unknown warehouse": (lambda w: w.rest(uri=w.nessie.uri, warehouse="nope"), ["no warehouse nope"]),
    "wrong credential": (
        lambda w: w.rest(uri=w.nessie.uri, credential=f"me:{CANARY}", **{"oauth2-server-uri": w.other}),
        ["does not accept the login", "`credential` (ID:SECRET)"],
    ),
    "no identity provider": (
        lambda w: w.rest(uri=w.nessie.uri, credential=f"me:{CANARY}"), ["`oauth2-server-uri`"]
    ),
    # S3
    "wrong key": (
        lambda w: w.jdbc(properties={"s3.access-key-id": CANARY}),
        ["S3 refuses access (403)", "s3.access-key-id"],
    ),
    "wrong secret": (
        lambda w: w.jdbc(properties={"s3.secret-access-key": CANARY}),
        ["does not accept the secret key", "s3.secret-access-key"],
    ),
    "no keys": (lambda w: w.jdbc(properties=NO_KEYS), ["no credentials for S3", "AWS_ACCESS_KEY_ID"]),
    "no bucket": (lambda w: w.jdbc(warehouse="s3://nope/wh"), ["bucket does not exist", "`warehouse`"]),
    "no right to write": (lambda w: w.jdbc(w.read_only), ["does not allow", "read-only"]),
    "no region": (lambda w: w.jdbc(properties={"client.region": None}), ["no region for S3", "AWS_REGION"]),
    "wrong region": (
        lambda w: w.jdbc(properties={"s3.endpoint": w.other}), ["in another region", "client.region"]
    ),
    "no store": (
        lambda w: w.jdbc(properties={"s3.endpoint": f"http://{w.nobody}"}), ["cannot be reached: http://127"]
    ),
    "no TLS at the store": (
        lambda w: w.jdbc(properties={"s3.endpoint": w.strict.url.replace("http", "https")}),
        ["does not speak TLS", "s3.endpoint"],
    ),
    # databases
    "no driver": (lambda w: w.jdbc(uri="jdbc:oracle:thin:@h"), ["no JDBC driver for jdbc:oracle", "jar"]),
    "no MySQL": (lambda w: w.jdbc(uri=f"jdbc:mysql://{w.nobody}/x"), ["database cannot be reached", "`uri`"]),
    "no PostgreSQL": (
        lambda w: w.jdbc(uri=f"jdbc:postgresql://{w.nobody}/x"), ["database cannot be reached: 127.0.0.1"]
    ),
    "wrong password": (
        lambda w: w.in_mysql("x", user="root", password=CANARY), ["not accept the account root", "`password`"]
    ),
    "no database": (
        lambda w: w.in_mysql("nope", user="root", password=w.mysql.password), ["database nope does not exist"]
    ),
    "no directory": (lambda w: w.jdbc(uri="jdbc:sqlite:/nowhere/c.db"), ["SQLite", "directory must exist"]),
    # Hive
    "no metastore": (lambda w: {"type": "hive", "uri": f"thrift://{w.nobody}"}, ["Hive metastore", "`uri`"]),
    # directories
    "a file": (lambda w: w.jdbc(warehouse=__file__), [__file__, "is a file"]),
    "a directory that cannot be": (lambda w: w.jdbc(warehouse="/proc/no"), ["/proc/no", "writable"]),
}  # fmt: skip


def probed(spark: SparkSession, name: str, section: dict[str, Any]) -> list[Probed]:
    """What `penstock doctor` finds, in this session."""
    options = catalog(**section, name=name)
    kind = registry.kind("iceberg")
    for option, value in kind.spark_options(options, {}, Path("unused")).items():
        if option.startswith(f"spark.sql.catalog.{name}"):
            spark.conf.set(option, value)
    probe = kind.probe(options, {})
    assert probe is not None
    return list(probe(spark, ["shop"]))


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_paragraph_with_the_cure(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, said = CASES[name]
    found = probed(spark, "wrong_" + name.replace(" ", "_"), make(world))
    failed = [one for one in found if not one.ok]
    assert len(failed) == 1 and failed[0] is found[-1], found
    message = failed[0].message
    for part in said:
        assert part in message, message
    for part in ("Exception", "\n", "\tat ", "Py4J", "()", CANARY):
        assert part not in message, message
    assert len(message) < 1000


@pytest.mark.parametrize("name", ["jdbc", "mysql", "rest"])
def test_what_is_right_is_found_right_and_leaves_nothing_behind(
    world: World, spark: SparkSession, name: str
) -> None:
    world.mysql.execute("CREATE DATABASE IF NOT EXISTS catalog")
    section = {
        "jdbc": lambda: world.jdbc(),
        "mysql": lambda: world.in_mysql("catalog", user="root", password=world.mysql.password),
        "rest": lambda: world.rest(uri=world.nessie.uri),
    }[name]()
    found = probed(spark, f"right_{name}", section)
    assert [one.check for one in found if one.ok] == ["catalog", "namespace", "table", "store", "drop"], found
    assert spark.sql(f"SHOW NAMESPACES IN right_{name}").collect() == []
