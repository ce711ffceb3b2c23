"""What a real server sends of its log, written as one segment of a relay log."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from penstock._core import Framer, LogEncoder, PgTranslator, RangeDecoder
from penstock.model.schema import DEFAULT_TYPES, TableId, TypeOptions
from penstock.relaylog.segment_format import PGOUTPUT
from penstock.relaylog.writer import Piece
from penstock.secret import Secret
from penstock.sources.postgresql.catalog import PgTable, read_tables
from penstock.sources.postgresql.followed_tables import FollowedTables
from penstock.sources.postgresql.log_position import lsn_of
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.replication import Replication
from penstock.testing.servers.postgresql import PostgreSqlServer

WAIT_S = 60.0
SETTINGS = "SET datestyle = ISO; SET intervalstyle = iso_8601; SET timezone = 'UTC'; SET bytea_output = hex"


def connected(server: PostgreSqlServer) -> psycopg.Connection[Any]:
    """As the superuser, with the settings of a session that reads the log."""
    connection = psycopg.connect(
        host=server.host, port=server.port, dbname=server.database, user=server.user,
        password=server.password, autocommit=True,
    )  # fmt: skip
    connection.execute(SETTINGS)
    return connection


def options_at(server: PostgreSqlServer) -> PostgreSqlOptions:
    return PostgreSqlOptions(
        type="postgresql", host=server.host, port=server.port, database=server.database, user=server.user,
        password=Secret(server.password),
    )  # fmt: skip


def table_of(connection: psycopg.Connection[Any], table: TableId, publication: str = "all") -> PgTable:
    [found] = read_tables(connection, publication, names=[table])
    return found


@dataclass(frozen=True)
class Segment:
    path: Path
    size: int
    entries: list[dict[str, Any]]

    def changes(
        self, schema: str, layout: str = "changelog", *, types: TypeOptions = DEFAULT_TYPES
    ) -> list[dict[str, Any]]:
        """The rows of a table, as Arrow has them."""
        decoder = RangeDecoder(
            schema, str(self.path), 0, 0, self.size, layout=layout, before_images=True, types=types.to_json()
        )
        return [row for batch in decoder for row in batch.to_pylist()]

    def messages(self, format: str, **options: Any) -> list[dict[str, Any]]:
        """The messages of a format, with statements as they are given."""
        encoder = LogEncoder([(str(self.path), 0, 0, self.size, [])], format, options=json.dumps(options))
        found: list[dict[str, Any]] = []
        while (step := encoder.read(1 << 20)) is not None:
            lines = step if isinstance(step, list) else step.lines(False).splitlines()
            found += [line if isinstance(line, dict) else json.loads(line) for line in lines]
        return found


def _bytes_of(piece: Piece) -> bytes:
    """Those of the segment."""
    found = piece if isinstance(piece, bytes) else piece[1]
    assert isinstance(found, bytes)
    return found


class PgLog:
    """A slot that begins now, for the publication `all` of a database."""

    def __init__(self, server: PostgreSqlServer, connection: psycopg.Connection[Any], name: str) -> None:
        self._server, self._connection, self._name = server, connection, name
        self.replication = Replication(options_at(server))
        slot = self.replication.create_slot(name)
        assert slot is not None
        self.start = slot.start

    def segment(self, path: Path, *, binary: bool = True) -> Segment:
        """Everything up to now."""
        [(text,)] = self._connection.execute("SELECT pg_current_wal_insert_lsn()::text")
        wanted = lsn_of(text)
        self.replication.start(self._name, "all", self.start, binary=binary)
        translator, tables = PgTranslator(self.start, 0), FollowedTables(path.parent, "all")
        framer = Framer(
            offset=0, segment_size=1 << 40, span_size=1 << 20, server_uuid="server", executed="",
            position=self.start, segment_format=PGOUTPUT,
        )  # fmt: skip
        pieces, reached = framer.feed(PgTranslator.moved(self.start)), self.start
        deadline = time.monotonic() + WAIT_S
        while reached < wanted or not translator.is_idle:
            assert time.monotonic() < deadline, f"the log ends at {reached}, and not at {wanted}"
            batch = self.replication.take(1.0, 1 << 20)
            unknown = translator.unknown(batch)
            for message, one in tables.described(self._connection, unknown) if unknown else ():
                translator.describe(message, one.definition, root=one.root)
            pieces += framer.feed(translator.translate(batch))
            reached = max(reached, batch.end, translator.end_lsn)
        data = b"".join(_bytes_of(piece) for piece in pieces)
        path.write_bytes(data)
        return Segment(path, len(data), [json.loads(entry) for entry in framer.cut()])

    def close(self) -> None:
        self.replication.close()
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._connection.execute("SELECT pg_drop_replication_slot(%s)", (self._name,))
                return
            except psycopg.errors.ObjectInUse:  # until the server has noticed
                assert time.monotonic() < deadline
