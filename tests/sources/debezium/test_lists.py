"""Arrays of PostgreSQL in Debezium's topics: they are lists in the log, in Arrow and in every message. The
judges of messages are readers of others."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.encode.registry_server import fake_registry
from tests.sources.debezium.avro import InAvro
from tests.sources.debezium.messages import ID, Consumed, Table, column, consumed, decimal, postgresql
from tests.sources.debezium.test_avro import take
from tests.sources.debezium.test_translator import VARIABLE
from tests.sources.debezium.test_values_in_messages import number, of_log, rows_of, strict
from tests.sources.debezium.topic_log import Logs, TopicLog, definitions_of

from penstock._core import DecodeError, Inspector, RangeDecoder, RowEncoder, row_hashes
from penstock.model.offset import LogRange
from penstock.model.schema import EXACT_TYPES, TableId, TypeOptions
from penstock.relaylog.segment_bytes import opened

NAME = TableId("public", "lists")
LISTS = TypeOptions(arrays="list")
MOMENT = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=datetime.timezone.utc)
DAY = datetime.date(2024, 2, 29)
MICROS = 1_709_208_000_123_456


def items(kind: str, semantic: str = "", **more: Any) -> dict[str, Any]:
    """The schema of an array's elements: its connector says that each may be NULL."""
    named = {"name": semantic, "version": 1} if semantic else {}
    return {"type": kind, "optional": True, **named, **more}


UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
KINDS: dict[str, tuple[dict[str, Any], Any, Any, Any]] = {
    "ints": (items("int32"), -7, -7, -7),
    "words": (items("string"), 'q"\\,{}\nä', 'q"\\,{}\nä', 'q"\\,{}\nä'),
    "prices": (
        items("bytes", "org.apache.kafka.connect.data.Decimal",
              parameters={"scale": "2", "connect.decimal.precision": "10"}),
        decimal(-1250), Decimal("-12.50"), Decimal("-12.50"),
    ),
    "moments": (
        items("string", "io.debezium.time.ZonedTimestamp"), "2024-02-29T13:00:00.123456+01:00", MOMENT,
        "2024-02-29 12:00:00.123456",
    ),
    "times": (
        items("int64", "io.debezium.time.MicroTimestamp"), MICROS, MOMENT.replace(tzinfo=None),
        "2024-02-29 12:00:00.123456",
    ),
    "days": (items("int32", "io.debezium.time.Date"), 19782, DAY, "2024-02-29"),
    "flags": (items("boolean"), True, True, True),
    "much": (items("double"), "-Infinity", float("-inf"), "-Infinity"),
    "ids": (items("string", "io.debezium.data.Uuid"), UUID, UUID, UUID),
    "raw": (items("bytes"), base64.b64encode(b"\x00\xff").decode(), b"\x00\xff", "AP8="),
    "docs": (items("string", "io.debezium.data.Json"), '{"a": [1, null]}', '{"a": [1, null]}',
             {"a": [1, None]}),
    "nums": (
        {**{name: value for name, value in VARIABLE.items() if name != "field"}, "optional": True},
        number("0.10"), "0.10", Decimal("0.10"),
    ),
}  # fmt: skip
"""For each column: the schema of its elements, an element as the topic has it, as Arrow has it, and as JSON
text has it."""
TABLE = Table(
    "postgresql",
    [ID, *[column(name, "array", items=one) for name, (one, *_) in KINDS.items()]],
    source={"db": "shop", "schema": "public", "table": "lists"},
)
SHAPES: list[Callable[[Any], Any]] = [
    lambda one: [one, None, one],
    lambda _: [],
    lambda _: None,
    lambda _: [None],
]
"""What each column has in the rows 1 to 4."""


def rows(place: int) -> list[dict[str, Any]]:
    """The rows: as sent (0), in Arrow (1), in text (2)."""
    return [
        {"id": at, **{name: shape(values[place]) for name, (_, *values) in KINDS.items()}}
        for at, shape in enumerate(SHAPES, 1)
    ]


SENT, IN_ARROW, IN_TEXT = (rows(place) for place in range(3))


def messages(table: Table = TABLE, sent: list[dict[str, Any]] = SENT) -> list[Consumed]:
    pairs = [table.change("c", None, row, **postgresql(at, at)) for at, row in enumerate(sent, 1)]
    return [consumed(table, at, pair) for at, pair in enumerate(pairs, 1)]


@pytest.fixture
def log(logs: Logs) -> TopicLog:
    made = logs()
    assert made.take(messages()) == []
    return made


def decoded(log: TopicLog, types: TypeOptions = LISTS) -> pa.Table:
    at, schema = definitions_of(log.folder)[NAME]
    return pa.Table.from_batches(
        batch.select([column.name for column in schema.columns])
        for split in log.log.splits(LogRange(at, log.log.end), NAME, bytes_aim=1 << 20)
        for batch in RangeDecoder(
            schema.to_json(), *opened(split).place, layout="changelog", types=types.to_json()
        )
    )


def test_elements_have_the_type_that_the_topic_says(log: TopicLog) -> None:
    found = decoded(log)
    assert found.to_pylist() == IN_ARROW
    assert {found.schema.field(name).type.value_type for name in ("prices", "moments", "nums")} == {
        pa.decimal128(10, 2), pa.timestamp("us", "UTC"), pa.string(),
    }  # fmt: skip
    scaled = decoded(log, TypeOptions(arrays="list", numeric_scale=3))
    assert scaled.column("nums").to_pylist()[0] == [Decimal("0.100"), None, Decimal("0.100")]


def test_lists_are_json_unless_that_is_chosen(log: TopicLog) -> None:
    found = decoded(log, TypeOptions())
    assert set(found.schema.types) == {pa.int64(), pa.string()}
    read = [
        {name: value if name == "id" or value is None else json.loads(value, parse_float=Decimal)
         for name, value in row.items()}
        for row in found.to_pylist()
    ]  # fmt: skip
    assert read == IN_TEXT


def test_topics_in_avro_have_the_same_lists(tmp_path: Path) -> None:
    with fake_registry() as registry:
        in_avro = InAvro(registry)
        log = TopicLog(tmp_path / "avro")
        try:
            finite = [
                {**row, "much": row["much"] and [one and float("-inf") for one in row["much"]]}
                for row in SENT
            ]
            sent = [in_avro.message(one) for one in messages(sent=finite)]
            assert take(log, registry, sent) == []
            assert decoded(log).to_pylist() == IN_ARROW
        finally:
            log.close()


def test_an_array_without_a_schema_is_json_because_nothing_says_what_its_elements_are(logs: Logs) -> None:
    log, plain = logs(), Table("postgresql", TABLE.columns, source=TABLE.source, with_schema=False)
    assert log.take(messages(plain, [{"id": 1, "ints": [1, None]}, {"id": 2, "ints": []}])) == []
    assert decoded(log).to_pylist() == [{"id": 1, "ints": "[1, null]"}, {"id": 2, "ints": "[]"}]


def test_an_array_of_structs_or_of_arrays_is_json(logs: Logs) -> None:
    log = logs()
    struct = {"type": "struct", "fields": [{"field": "a", "type": "int32"}], "optional": True}
    nested = {"type": "array", "items": items("int32"), "optional": True}
    table = Table(
        "postgresql", [ID, column("one", "array", items=struct), column("other", "array", items=nested)],
        source=TABLE.source,
    )  # fmt: skip
    assert log.take(messages(table, [{"id": 1, "one": [{"a": 1}], "other": [[1], []]}])) == []
    assert decoded(log).to_pylist() == [{"id": 1, "one": '[{"a": 1}]', "other": "[[1], []]"}]


def test_an_array_with_several_dimensions_is_no_list(logs: Logs) -> None:
    log = logs()
    table = Table("postgresql", [ID, column("ints", "array", items=items("int32"))], source=TABLE.source)
    assert log.take(messages(table, [{"id": 1, "ints": [[1, 987654], [3, 4]]}])) == []
    assert decoded(log, TypeOptions()).to_pylist() == [{"id": 1, "ints": "[[1, 987654], [3, 4]]"}]
    with pytest.raises(DecodeError, match=r"`ints`.*several dimensions.*types\.arrays: json") as raised:
        decoded(log)
    assert "987654" not in str(raised.value)
    for format in ("json", "maxwell"):
        assert rows_of(format, of_log(log, format, "{}")[0], [], log.folder)[0]["ints"] == [
            [1, 987654],
            [3, 4],
        ]
    for format in ("debezium", "avro", "protobuf"):
        with pytest.raises(DecodeError, match="several dimensions"):
            of_log(log, format, "{}")


def test_an_element_that_does_not_fit_is_refused(logs: Logs) -> None:
    log = logs()
    faults = log.take(messages(sent=[{**SENT[1], "ints": [1, 2**31]}, {**SENT[1], "flags": [1]}]))
    assert len(faults) == 1 and "ints" in faults[0][3] and "4 bytes" in faults[0][3]


def test_a_list_whose_elements_change_is_read_again(logs: Logs) -> None:
    log = logs()
    for at, kind in enumerate(("int32", "int64"), 1):
        array = column("ints", "array", items=items(kind))
        table = Table("postgresql", [ID, array], source=TABLE.source)
        pair = table.change("c", None, {"id": at, "ints": [at]}, **postgresql(at, at))
        assert log.take([consumed(table, at, pair)]) == []
    with pytest.raises(
        AssertionError, match="values of column ints are converted from list of int to list of "
    ):
        definitions_of(log.folder)


def test_lists_can_be_compared(log: TopicLog) -> None:
    _, schema = definitions_of(log.folder)[NAME]
    for name in KINDS:
        hashes = set()
        for types in (LISTS, TypeOptions()):
            (batch,) = decoded(log, types).combine_chunks().to_batches()
            found = [row_hashes(schema.to_json(), batch, [name], types.to_json()) for _ in range(2)]
            assert found[0] == found[1] and len(set(found[0].to_pylist())) == len(SHAPES), name
            same = batch.take([2, 0]).slice(1)
            assert row_hashes(schema.to_json(), same, [name], types.to_json())[0] == found[0][0], name
            hashes |= set(found[0].to_pylist())
        assert len(hashes) == 2 * len(SHAPES) - 1, "only NULL is the same in both forms"


# messages ---------------------------------------------------------------------------------------------------


def of_arrow(log: TopicLog, format: str, options: str) -> tuple[list[bytes | None], list[dict[str, Any]]]:
    """The messages of the same rows after they were Arrow, as a snapshot's are."""
    _, schema = definitions_of(log.folder)[NAME]
    encoder = RowEncoder(schema.to_json(), format, options=options)
    batches = decoded(log, EXACT_TYPES).to_batches()
    found = [one for batch in batches for one in encoder.encode(batch, at_us=1).messages()]
    return [value for table, _, value, _ in found if table is not None], encoder.message_schemas


def expected(format: str) -> list[dict[str, Any]]:
    """The rows as a reader of the format sees them."""
    if format.startswith("canal"):
        return IN_TEXT
    if format in ("json", "maxwell"):
        text: dict[str, Any] = {"prices": "-12.50", "nums": "0.10" if format == "json" else Decimal("0.10"),
                "docs": '{"a": [1, null]}' if format == "json" else {"a": [1, None]}}  # fmt: skip
        text["prices"] = "-12.50" if format == "json" else Decimal("-12.50")
        return [
            {name: shape(text.get(name, one)) if name != "id" else one for name, one in row.items()}
            for shape, row in zip(SHAPES, _elements(2), strict=True)
        ]
    sent: dict[str, Any] = {"moments": "2024-02-29T12:00:00.123456Z", "nums": {**number("0.10")}}
    if format in ("avro", "protobuf"):
        unscaled = base64.b64decode(number("0.10")["value"])
        sent |= {"much": float("-inf"), "raw": b"\x00\xff", "nums": {"scale": 2, "value": unscaled},
                 "prices": Decimal("-12.50")}  # fmt: skip
    else:
        sent["prices"] = base64.b64encode((-1250).to_bytes(2, "big", signed=True)).decode()
    return [
        {name: shape(sent.get(name, one)) if name != "id" else one for name, one in row.items()}
        for shape, row in zip(SHAPES, _elements(0), strict=True)
    ]


def _elements(place: int) -> list[dict[str, Any]]:
    return [{"id": at, **{name: v[place] for name, (_, *v) in KINDS.items()}} for at in range(1, 5)]


def seen(row: dict[str, Any], format: str) -> dict[str, Any]:
    """A row as it was read, with the lists of formats that have none."""
    if format.startswith("canal"):
        read = {
            name: value if value is None else json.loads(value, parse_float=Decimal)
            for name, value in row.items()
        }
        return {**read, "id": int(row["id"])}
    if format == "protobuf":  # a list is a message with a message for each element
        return {
            name: value if name == "id" or value is None else [one["value"] for one in value["elements"]]
            for name, value in row.items()
        }
    return row


FORMATS = [
    ("json", {}), ("maxwell", {}), ("canal", {}), ("canal-entry", {}), ("cloudevents", {}), ("debezium", {}),
    ("debezium", {"schemas": True}), ("avro", {}), ("protobuf", {}),
]  # fmt: skip


@pytest.mark.parametrize("way", [of_log, of_arrow], ids=["log", "arrow"])
@pytest.mark.parametrize(("format", "options"), FORMATS)
def test_readers_of_messages_see_the_lists_that_the_topic_had(
    log: TopicLog, tmp_path: Path, way: Callable[..., Any], format: str, options: dict[str, Any]
) -> None:
    values, schemas = way(log, format, json.dumps(options))
    found = [seen(row, format) for row in rows_of(format, values, schemas, tmp_path)]
    assert found == expected(format)


def test_debeziums_schema_of_a_list_is_the_one_that_its_connector_wrote(log: TopicLog) -> None:
    values, _ = of_log(log, "debezium", json.dumps({"schemas": True}))
    fields = {one["field"]: one for one in strict(values[0])["schema"]["fields"][1]["fields"]}
    for name, (element, *_) in KINDS.items():
        if name == "ids":  # a UUID of a topic is a text here
            element = items("string")
        assert fields[name]["type"] == "array" and fields[name]["optional"] is True
        found = fields[name]["items"]
        assert {**found, "version": 1} == {**element, "version": 1}, name


def test_inspect_prints_lists(log: TopicLog) -> None:
    inspector = Inspector(str(next(log.folder.glob("*.rows"))))
    lines = list[str]()
    while (some := inspector.next_lines()) is not None:
        lines += some
    assert [strict(line.encode())["after"] for line in lines] == IN_TEXT
