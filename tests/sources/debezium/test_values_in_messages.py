"""Values that MySQL does not have, in every format of messages. The judges are readers of others: Python's
`json`, fastavro and Google's Protobuf."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.core.test_encode_binary import avro_reader, decimal_of, protobuf_reader
from tests.serve.entry import CanalEntry
from tests.sources.debezium.messages import ID, Table, column, consumed, postgresql
from tests.sources.debezium.test_translator import VARIABLE
from tests.sources.debezium.topic_log import Logs, TopicLog, definitions_of

from penstock._core import DecodeError, EncodedMessages, Inspector, LogEncoder, RangeDecoder, RowEncoder
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId, TypeOptions
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.segment_bytes import opened
from penstock.testing import servers

TABLE = Table(
    "postgresql",
    [
        ID, column("yes", "boolean"), column("small", "float"), column("much", "double"),
        column("at", "string", "io.debezium.time.ZonedTimestamp"), {**VARIABLE, "field": "num"},
        column("span", "string", "io.debezium.time.Interval"),
        column("doc", "string", "io.debezium.data.Json"),
    ],
    source={"db": "shop", "schema": "public", "table": "values"},
)  # fmt: skip
NAME = TableId("public", "values")
NAMES = [one["field"] for one in TABLE.columns]


def number(text: str) -> dict[str, Any]:
    whole, _, fraction = text.partition(".")
    unscaled = int(whole + fraction)
    bytes_ = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return {"scale": len(fraction), "value": base64.b64encode(bytes_).decode()}


ROWS: list[dict[str, Any]] = [
    {"id": 1, "yes": True, "small": "Infinity", "much": "-Infinity", "at": "0001-01-01T00:00:00Z",
     "num": number("-1" + "0" * 60 + ".50"), "span": "P1Y2M3DT4H5M6.78S", "doc": '{"a":\n [1.50, "ä"]}'},
    {"id": 2, "yes": False, "small": "NaN", "much": "Infinity", "at": "9999-12-31T23:59:59.999999+00:00",
     "num": number("0"), "span": "P0D", "doc": "null"},
    {"id": 3, "yes": None, "small": "-Infinity", "much": "NaN", "at": "1901-12-13T20:45:51.000001+01:00",
     "num": number("0.00"), "span": None, "doc": "7"},
    {"id": 4, "yes": True, "small": 1.5, "much": -1e300, "at": None, "num": None, "span": "PT-0.5S",
     "doc": None},
]  # fmt: skip
NUMBERS = ["-1" + "0" * 60 + ".50", "0", "0.00", None]
MOMENTS = ["0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", "1901-12-13 19:45:51.000001", None]


@pytest.fixture
def log(logs: Logs) -> TopicLog:
    made = logs()
    pairs = [TABLE.change("c", None, row, **postgresql(at, at)) for at, row in enumerate(ROWS, 1)]
    assert made.take(consumed(TABLE, at, pair) for at, pair in enumerate(pairs)) == []
    return made


def strict(text: bytes | None) -> Any:
    """JSON as the standard has it, without Python's NaN and Infinity."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    assert text is not None and b"\n" not in text, "a message is one line"
    return json.loads(text, parse_constant=refuse, parse_float=Decimal)


def of_log(log: TopicLog, format: str, options: str) -> tuple[list[bytes | None], list[dict[str, Any]]]:
    parts = parts_of(log.log, LogRange(Offset(0), log.log.end))
    encoder, found = LogEncoder(parts, format, options=options), list[bytes | None]()
    while (step := encoder.read()) is not None:
        if isinstance(step, EncodedMessages):
            found += [value for table, _, value, _ in step.messages() if table is not None]
    return found, encoder.message_schemas


def decoded(log: TopicLog, types: TypeOptions) -> list[pa.RecordBatch]:
    at, schema = definitions_of(log.folder)[NAME]
    return [
        batch
        for split in log.log.splits(LogRange(at, log.log.end), NAME, bytes_aim=1 << 20)
        for batch in RangeDecoder(
            schema.to_json(), *opened(split).place, layout="changelog", types=types.to_json()
        )
    ]


def of_arrow(log: TopicLog, format: str, options: str) -> tuple[list[bytes | None], list[dict[str, Any]]]:
    """The messages of the same rows after they were Arrow, as a snapshot's are."""
    _, schema = definitions_of(log.folder)[NAME]
    encoder = RowEncoder(schema.to_json(), format, options=options)
    found = [
        one for batch in decoded(log, TypeOptions()) for one in encoder.encode(batch, at_us=1).messages()
    ]
    return [value for table, _, value, _ in found if table is not None], encoder.message_schemas


def rows_of(
    format: str, values: list[bytes | None], schemas: list[dict[str, Any]], folder: Path
) -> list[Any]:
    """The rows that the readers of a format see."""
    if format in ("avro", "protobuf"):
        read = avro_reader(schemas) if format == "avro" else protobuf_reader(schemas, folder)
        return [read(value)["after"] for value in values]
    if format == "canal-entry":
        entries = [CanalEntry.Entry.FromString(value) for value in values]
        changes = [CanalEntry.RowChange.FromString(one.storeValue) for one in entries]
        rows = [row for change in changes for row in change.rowDatas]
        return [{c.name: None if c.isNull else c.value for c in row.afterColumns} for row in rows]
    found = [strict(value) for value in values]
    match format:
        case "canal":
            return [row for one in found for row in one["data"]]
        case "maxwell":
            return [one["data"] for one in found]
        case "cloudevents":
            return [one["data"]["after"] for one in found]
    return [one.get("payload", one)["after"] for one in found]


def same_number(found: Any, sent: Any) -> bool:
    value, expected = float(found), float(sent)
    return math.isnan(value) if math.isnan(expected) else value == expected


FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("json", {}), ("json", {"decimal": "number"}), ("maxwell", {}), ("canal", {}), ("canal-entry", {}),
    ("cloudevents", {}), ("debezium", {}), ("debezium", {"schemas": True}),
    ("debezium", {"decimal_handling_mode": "string"}), ("debezium", {"decimal_handling_mode": "double"}),
    ("avro", {}), ("avro", {"decimal_handling_mode": "string"}),
    ("avro", {"decimal_handling_mode": "double"}),
    ("protobuf", {}), ("protobuf", {"decimal_handling_mode": "string"}),
    ("protobuf", {"decimal_handling_mode": "double"}),
]  # fmt: skip


@pytest.mark.parametrize("way", [of_log, of_arrow], ids=["log", "arrow"])
@pytest.mark.parametrize(
    ("format", "options"), FORMATS, ids=[f"{a}-{'-'.join(map(str, b.values()))}" for a, b in FORMATS]
)
def test_readers_see_the_values_that_the_topic_had(
    log: TopicLog, tmp_path: Path, way: Callable[..., Any], format: str, options: dict[str, Any]
) -> None:
    values, schemas = way(log, format, json.dumps(options))
    found = rows_of(format, values, schemas, tmp_path)
    assert [int(row["id"]) for row in found] == [1, 2, 3, 4]
    in_text = format.startswith("canal")
    truth = {True: "1", False: "0", None: None} if in_text else {True: True, False: False, None: None}
    assert [row["yes"] for row in found] == [truth[row["yes"]] for row in ROWS]
    for row, sent in zip(found, ROWS, strict=True):
        assert same_number(row["small"], sent["small"]) and same_number(row["much"], sent["much"])
    iso = format in ("debezium", "cloudevents", "avro", "protobuf")
    assert [row["at"] for row in found] == [iso_of(one) if iso else one for one in MOMENTS]
    assert [row["span"] for row in found] == [row["span"] for row in ROWS]
    assert [text_of(row["doc"], format) for row in found] == [
        None if row["doc"] is None else json.loads(row["doc"]) for row in ROWS
    ]
    mode = options.get("decimal_handling_mode", "precise" if iso else "string")
    shown = [number_of(row["num"], mode) for row in found]
    if mode == "double":
        assert shown == [None if one is None else float(one) for one in NUMBERS]
    else:
        assert [None if one is None else f"{one:f}" for one in shown] == NUMBERS


def iso_of(moment: str | None) -> str | None:
    return None if moment is None else moment.replace(" ", "T") + "Z"


def text_of(document: Any, format: str) -> Any:
    """Maxwell writes the document itself, all others its text."""
    return document if document is None or format == "maxwell" else json.loads(document)


def number_of(value: Any, mode: str) -> Any:
    if value is None:
        return None
    if mode == "precise":
        unscaled = value["value"]
        data = unscaled if isinstance(unscaled, bytes) else base64.b64decode(unscaled)
        return decimal_of(data, int(value["scale"]))
    return float(value) if mode == "double" else Decimal(value)


def test_debeziums_schema_names_the_types_as_its_connectors_do(log: TopicLog) -> None:
    values, _ = of_log(log, "debezium", json.dumps({"schemas": True}))
    fields = {one["field"]: one for one in strict(values[0])["schema"]["fields"][1]["fields"]}
    for sent in TABLE.columns[1:]:
        field = fields[sent["field"]]
        assert (field["type"], field.get("name")) == (sent["type"], sent.get("name"))
    assert fields["num"]["fields"] == [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ]


def numbers_in_messages(texts: list[str], format: str, **options: Any) -> list[Any]:
    """NUMERIC from Arrow, because topics with `VariableScaleDecimal` cannot say NaN."""
    schema = json.dumps({
        "database": "d", "table": "t", "version": 1, "key": ["id"],
        "columns": [{"name": "id", "type": "int", "nullable": False}, {"name": "num", "type": "numeric"}],
    })  # fmt: skip
    batch = pa.record_batch({"id": pa.array(range(len(texts)), pa.int32()), "num": pa.array(texts)})
    encoder = RowEncoder(schema, format, options=json.dumps(options))
    values = [value for _, _, value, _ in encoder.encode(batch, at_us=1).messages()]
    return [row["num"] for row in rows_of(format, values, encoder.message_schemas, Path())]


@pytest.mark.parametrize("format", ["json", "maxwell", "canal"])
def test_what_is_no_number_has_its_name_in_json(format: str) -> None:
    texts = ["NaN", "Infinity", "-Infinity", "1.50"]
    found = numbers_in_messages(texts, format, **({"decimal": "number"} if format == "json" else {}))
    assert found[:3] == texts[:3] and Decimal(found[3]) == Decimal("1.50")


@pytest.mark.parametrize("format", ["debezium", "avro"])
def test_what_is_no_number_has_debeziums_names(format: str) -> None:
    """`io.debezium.data.SpecialValueDecimal` has them; with `precise`, its connectors stop."""
    texts = ["NaN", "Infinity", "-Infinity", "1.50"]
    found = numbers_in_messages(texts, format, decimal_handling_mode="string")
    assert found == ["NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", "1.50"]
    doubles = numbers_in_messages(texts, format, decimal_handling_mode="double")
    assert all(same_number(one, text) for one, text in zip(doubles, texts, strict=True))
    with pytest.raises(DecodeError, match=r"decimal\.handling\.mode: precise"):
        numbers_in_messages(texts, format)


def test_inspect_prints_json(log: TopicLog) -> None:
    inspector = Inspector(str(next(log.folder.glob("*.rows"))))
    lines = list[str]()
    while (some := inspector.next_lines()) is not None:
        lines += some
    rows = [strict(line.encode())["after"] for line in lines]
    assert [row["small"] for row in rows] == ["Infinity", "NaN", "-Infinity", Decimal("1.5")]
    assert [row["much"] for row in rows[:3]] == ["-Infinity", "Infinity", "NaN"]
    assert [row["doc"] for row in rows] == [row["doc"] for row in ROWS]
    assert [row["num"] for row in rows] == NUMBERS and rows[0]["yes"] is True
    assert [row["at"] for row in rows] == MOMENTS


# choices of `types` ----------------------------------------------------------------------------------------


def numbers(log: TopicLog, **types: Any) -> list[Any]:
    return [row["num"] for batch in decoded(log, TypeOptions(**types)) for row in batch.to_pylist()]


def test_numbers_are_text_unless_they_have_a_scale(logs: Logs) -> None:
    log = logs()
    sent = ["0.10", "-12345678901234567890.5", "7", "0.0000", None]
    for at, text in enumerate(sent, 1):
        row = dict.fromkeys(NAMES) | {"id": at, "num": text and number(text)}
        assert log.take([consumed(TABLE, at, TABLE.change("c", None, row, **postgresql(at, at)))]) == []
    assert numbers(log) == numbers(log, decimal="string", numeric_scale=2) == sent
    assert numbers(log, numeric_scale=1) == [text and Decimal(text) for text in sent]
    (kind,) = {batch.schema.field("num").type for batch in decoded(log, TypeOptions(numeric_scale=1))}
    assert kind == pa.decimal128(38, 1)
    assert numbers(log, decimal="double") == [text and float(text) for text in sent]
    with pytest.raises(DecodeError, match=r"num.*does not fit into DECIMAL\(38,0\).*numeric_scale") as raised:
        numbers(log, numeric_scale=0)
    assert "0.1" not in str(raised.value) and "12345" not in str(raised.value)
    with pytest.raises(DecodeError, match=r"does not fit into DECIMAL\(38,37\)"):
        numbers(log, numeric_scale=37)
    with pytest.raises(ValueError, match="numeric_scale"):
        decoded(log, TypeOptions(numeric_scale=39))


def test_moments_keep_their_microseconds(log: TopicLog) -> None:
    found = [row["at"] for batch in decoded(log, TypeOptions()) for row in batch.to_pylist()]
    assert [one and one.astimezone(datetime.timezone.utc).replace(tzinfo=None) for one in found] == [
        one and datetime.datetime.fromisoformat(one) for one in MOMENTS
    ]


@pytest.mark.slow
def test_postgresql_reads_numbers_and_spans_back(logs: Logs) -> None:
    """The server prints and reads them; the numbers of `MicroDuration` are microseconds."""
    micros = [0, 1, -1, -500_000, 5_400_500_000, 2**53 + 1, -(2**53) - 1, 86_400_000_000 * 400]
    texts = ["0.1000", "-1" + "0" * 80 + ".5", "0.00", "1" * 90]
    span = column("span", "int64", "io.debezium.time.MicroDuration")
    made, log = Table("postgresql", [ID, span, {**VARIABLE, "field": "num"}], source=TABLE.source), logs()
    with (
        servers.postgresql() as server,
        psycopg.connect(server.url, user=server.user, password=server.password) as session,
    ):
        found = [session.execute("SELECT %s::numeric::text", [one]).fetchone() for one in texts]
        shown = [one[0] for one in found if one is not None]
        for at, number_of_micros in enumerate(micros):
            row = {"id": at, "span": number_of_micros, "num": number(shown[at % len(shown)])}
            assert log.take([consumed(made, at, made.change("c", None, row, **postgresql(at + 1, at)))]) == []
        rows = log.rows(str(NAME))
        assert [row["num"] for row in rows] == shown * 2 == texts * 2
        ask = "SELECT (extract(epoch FROM %s::interval) * 1000000)::bigint"
        assert [session.execute(ask, [row["span"]]).fetchone() for row in rows] == [(one,) for one in micros]
