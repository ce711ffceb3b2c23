"""A life of one row in each connector, after the example events in Debezium's documentation: its names, its
forms of keys and `source` blocks, with the values of its examples or ones like them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.sources.debezium.messages import Table, column

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Life:
    """`events`: operation, row before and after, and what is special in `source`. `left`: the rows at the
    end. `name`: of the table in the log."""

    table: Table
    name: str
    events: tuple[tuple[str, Row | None, Row | None, Row], ...]
    left: tuple[Row, ...]

    @property
    def key(self) -> str:
        return self.table.key[0]

    def messages(self, *, streamed: bool = False) -> list[tuple[bytes | None, bytes | None]]:
        """`streamed`: without the rows of the snapshot."""
        found: list[tuple[bytes | None, bytes | None]] = []
        for op, before, after, source in self.events:
            if streamed and op == "r":
                continue
            pair = self.table.change(op, before, after, **source)
            found.append(pair)
            if op == "d":
                found.append((pair[0], None))
        return found


def _people(*names: str, kind: str = "int32") -> list[dict[str, Any]]:
    id, *texts = names
    return [column(id, kind, optional=False), *[column(name, "string", optional=False) for name in texts]]


def _person(names: tuple[str, ...], *values: Any) -> Row:
    return dict(zip(names, values, strict=True))


_LOWER = ("id", "first_name", "last_name", "email")
_UPPER = ("ID", "FIRST_NAME", "LAST_NAME", "EMAIL")


def _mysql() -> Life:
    anne = _person(_LOWER, 1004, "Anne", "Kretchmar", "annek@noanswer.org")
    marie = _person(_LOWER, 1004, "Anne Marie", "Kretchmar", "annek@noanswer.org")
    paul = _person(_LOWER, 1005, "Paul", "Tibbets", "ptibbets@noanswer.org")
    place = {"file": "mysql-bin.000003", "row": 0, "server_id": 223344, "gtid": None}
    table = Table(
        "mysql", _people(*_LOWER), ("id",), {"db": "inventory", "table": "customers"},
        "mysql-server-1.inventory.customers",
    )  # fmt: skip
    events = (
        ("c", None, anne, {**place, "pos": 154}),
        ("c", None, paul, {**place, "pos": 360}),
        ("u", anne, marie, {**place, "pos": 484}),
        ("d", paul, None, {**place, "pos": 805}),
    )
    return Life(table, "inventory.customers", events, (marie,))


def _postgresql() -> Life:
    anne = _person(_LOWER, 1, "Anne", "Kretchmar", "annek@noanswer.org")
    marie = _person(_LOWER, 1, "Anne Marie", "Kretchmar", "annek@noanswer.org")
    paul = _person(_LOWER, 2, "Paul", "Tibbets", "ptibbets@noanswer.org")
    key_only = {"id": 2, "first_name": "", "last_name": "", "email": ""}  # REPLICA IDENTITY DEFAULT
    source = {"db": "postgres", "schema": "public", "table": "customers", "xmin": None}
    columns, topic = _people(*_LOWER), "PostgreSQL_server.public.customers"
    table = Table("postgresql", columns, ("id",), source, topic)
    events = (
        ("r", None, anne, {"txId": 555, "lsn": 24023128, "sequence": '[null,"24023128"]'}),
        ("c", None, paul, {"txId": 556, "lsn": 24023160, "sequence": '["24023128","24023160"]'}),
        ("u", None, marie, {"txId": 557, "lsn": 24023200, "sequence": '["24023160","24023200"]'}),
        ("d", key_only, None, {"txId": 558, "lsn": 46523128, "sequence": '["24023200","46523128"]'}),
    )
    return Life(table, "public.customers", events, (marie,))


def _sqlserver() -> Life:
    john = _person(_LOWER, 1005, "john", "doe", "john.doe@example.org")
    noone = _person(_LOWER, 1005, "john", "doe", "noreply@example.org")
    jane = _person(_LOWER, 1006, "jane", "doe", "jane.doe@example.org")
    source = {"db": "testDB", "schema": "dbo", "table": "customers"}
    columns, topic = _people(*_LOWER), "server1.testDB.dbo.customers"
    table = Table("sqlserver", columns, ("id",), source, topic)
    begun = {"commit_lsn": "00000027:00000758:0005"}
    events = (
        ("c", None, john, {"change_lsn": "00000027:00000758:0003", **begun, "event_serial_no": "1"}),
        ("c", None, jane, {"change_lsn": "00000027:00000758:0004", **begun, "event_serial_no": "1"}),
        ("u", john, noone, {"change_lsn": "00000027:00000ac0:0002", "commit_lsn": "00000027:00000ac0:0007",
                            "event_serial_no": "2"}),
        ("d", jane, None, {"change_lsn": "00000027:00000db0:0005", "commit_lsn": "00000027:00000db0:0007",
                           "event_serial_no": "1"}),
    )  # fmt: skip
    return Life(table, "dbo.customers", events, (noone,))


def _oracle() -> Life:
    """A NUMBER without precision is a struct, and a key of NUMBER(9,0) an int32."""
    parts = [column("scale", "int32", optional=False), column("value", "bytes", optional=False)]
    number = column("SCORE", "struct", "io.debezium.data.VariableScaleDecimal", fields=parts)
    score = {"scale": 1, "value": "ew=="}  # 123, so 12.3
    anne = {**_person(_UPPER, 1004, "Anne", "Kretchmar", "annek@noanswer.org"), "SCORE": None}
    marie = {**anne, "FIRST_NAME": "Anne Marie", "SCORE": score}
    paul = {**_person(_UPPER, 1005, "Paul", "Tibbets", "ptibbets@noanswer.org"), "SCORE": None}
    source = {"db": "ORCLPDB1", "schema": "DEBEZIUM", "table": "CUSTOMERS", "ssn": 0, "redo_thread": 1}
    table = Table(
        "oracle", [*_people(*_UPPER), number], ("ID",), source, "server1.DEBEZIUM.CUSTOMERS",
    )  # fmt: skip

    def at(scn: int, transaction: str) -> Row:
        return {"scn": str(scn), "commit_scn": str(scn + 3), "txId": transaction, "user_name": "user"}

    events = (
        ("c", None, anne, at(2122156, "6.28.807")),
        ("c", None, paul, at(2122158, "6.28.808")),
        ("u", anne, marie, at(2125544, "6.9.809")),
        ("d", paul, None, {**at(2122182, "6.28.810"), "commit_scn": "2125600"}),
    )
    return Life(table, "DEBEZIUM.CUSTOMERS", events, ({**marie, "SCORE": "12.3"},))


def _db2() -> Life:
    anne = _person(_UPPER, 1005, "Anne", "Kretchmar", "annek@noanswer.org")
    noone = _person(_UPPER, 1005, "Anne", "Kretchmar", "noreply@example.org")
    paul = _person(_UPPER, 1006, "Paul", "Tibbets", "ptibbets@noanswer.org")
    source = {"db": "mydatabase", "schema": "MYSCHEMA", "table": "CUSTOMERS"}
    columns, topic = _people(*_UPPER), "mydatabase.MYSCHEMA.CUSTOMERS"
    table = Table("db2", columns, ("ID",), source, topic)

    def at(number: int) -> Row:
        return {
            "change_lsn": f"00000027:{number:08x}:0003",
            "commit_lsn": f"00000027:{number:08x}:0005",
        }

    events = (
        ("c", None, anne, at(0x758)),
        ("c", None, paul, at(0x800)),
        ("u", anne, noone, at(0xAC0)),
        ("d", paul, None, at(0xDB0)),
    )
    return Life(table, "MYSCHEMA.CUSTOMERS", events, (noone,))


def relational() -> dict[str, Life]:
    return {one.table.connector: one for one in (_mysql(), _postgresql(), _sqlserver(), _oracle(), _db2())}


def mongodb() -> tuple[list[tuple[bytes | None, bytes | None]], list[Row]]:
    """Messages, and the documents that are left by their ids."""
    key_schema = {"type": "struct", "optional": False, "name": "fulfillment.inventory.customers.Key",
                  "fields": [column("id", "string", optional=False)]}  # fmt: skip
    value_schema = {
        "type": "struct", "optional": False, "name": "fulfillment.inventory.customers.Envelope",
        "fields": [
            column("before", "string", "io.debezium.data.Json"),
            column("after", "string", "io.debezium.data.Json"),
            column("op", "string"),
            column("source", "struct", "io.debezium.connector.mongo.Source", optional=False, fields=[
                column(name, "int64" if name in ("ts_ms", "ord") else "string")
                for name in ("connector", "name", "ts_ms", "snapshot", "db", "rs", "collection", "ord")
            ]),
        ],
    }  # fmt: skip

    def message(number: int, op: str, document: Row | None, at: int) -> tuple[bytes, bytes]:
        id = {"id": f'{{"$numberLong": "{number}"}}'}
        source = {
            "connector": "mongodb", "name": "fulfillment", "ts_ms": 1_558_965_508_000, "snapshot": "false",
            "db": "inventory", "rs": "rs0", "collection": "customers", "ord": at,
        }  # fmt: skip
        text = None if document is None else json.dumps(document)
        payload = {"before": None, "after": text, "op": op, "source": source}
        return (
            json.dumps({"schema": key_schema, "payload": id}).encode(),
            json.dumps({"schema": value_schema, "payload": payload}).encode(),
        )

    anne = {"_id": {"$numberLong": "1004"}, "first_name": "Anne", "last_name": "Kretchmar"}
    marie = {**anne, "first_name": "Anne Marie"}
    paul = {"_id": {"$numberLong": "1005"}, "first_name": "Paul", "tags": ["a", {"b": 1}]}
    pairs: list[tuple[bytes | None, bytes | None]] = [
        message(1004, "c", anne, 31), message(1005, "c", paul, 32), message(1004, "u", marie, 33),
        message(1005, "d", None, 34),
    ]  # fmt: skip
    pairs.append((pairs[-1][0], None))
    return pairs, [{"id": '{"$numberLong": "1004"}', "document": json.dumps(marie)}]
