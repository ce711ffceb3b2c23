"""Partition transforms over Arrow columns. Iceberg's own `Transforms` judge."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg.layout import json_values
from penstock.sinks.lake.iceberg.transforms import is_supported, transformed
from penstock.sinks.lake.terms import Term

HOUR_US = 3_600_000_000
TIMES = [datetime(1970, 1, 1) + timedelta(microseconds=us) for us in (0, -1, 1, HOUR_US, -HOUR_US)]
TIMES += [datetime(1969, 12, 31), datetime(1968, 2, 29, 23, 59, 59, 999999), datetime(1, 1, 1)]
TIMES += [datetime(9999, 12, 31, 23)]
DATES = [*{one.date() for one in TIMES}, date(1969, 1, 1), date(1970, 2, 1), date(2024, 2, 29)]
TEXTS = ["", "a", "ab", "abc", "abcd", "iceberg", "größe", "😀", "a😀b😀c", "日本語テキスト", "x" * 1000]
TEXTS += ["\x00", "e\u0301"]
WHOLE = [0, 1, -1, 9, 10, -9, -10, -11, 34, 2**31 - 1, -(2**31)]
LONG = [*WHOLE, 2**63 - 1, -(2**63), 2**31, -(2**31) - 1]
UNSCALED = [0, 1, -1, 127, 128, -128, -129, 255, 1420, -1420, 10**17, -(10**37), 10**37 + 7]
UNSCALED += [2**120, -(2**120)]

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), WHOLE),
    "long": (pa.int64(), LONG),
    "decimal(38, 2)": (pa.decimal128(38, 2), [Decimal(one).scaleb(-2) for one in UNSCALED]),
    "decimal(9, 0)": (pa.decimal128(9, 0), [Decimal(one) for one in (0, 7, -7, 10**8, -(10**8))]),
    "date": (pa.date32(), DATES),
    "timestamp": (pa.timestamp("us"), TIMES),
    "timestamptz": (pa.timestamp("us", "UTC"), [one.replace(tzinfo=timezone.utc) for one in TIMES]),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), [one.encode() for one in TEXTS] + [b"\xff\x00\x80", bytes(range(256))]),
    "boolean": (pa.bool_(), [True, False]),
}
TIME = ["year", "month", "day"]
FITTING = {
    "int": ["bucket", "truncate"], "long": ["bucket", "truncate"], "decimal(38, 2)": ["bucket", "truncate"],
    "decimal(9, 0)": ["bucket", "truncate"],
    "date": ["bucket", *TIME], "timestamp": ["bucket", "hour", *TIME],
    "timestamptz": ["bucket", "hour", *TIME], "string": ["bucket", "truncate"],
    "binary": ["bucket", "truncate"], "boolean": [],
}  # fmt: skip
WIDTHS = {"bucket": [1, 16, 1000, 2**31 - 1], "truncate": [1, 3, 10, 1000]}
CASES = [
    (kind, Term(transform, "c", width))  # type: ignore[arg-type]
    for kind, transforms in FITTING.items()
    for transform in ["identity", *transforms]
    for width in WIDTHS.get(transform, [None])
]


def judged(spark: SparkSession, kind: str, term: Term, values: list[Any]) -> list[Any]:
    """What Iceberg makes of the values, as the JSON of its own metadata. py4j would turn a long number into a
    short one on its way, so the functions are joined in the JVM."""
    jvm: Any = spark._jvm
    iceberg, java = jvm.org.apache.iceberg, jvm.java.lang
    text = term.transform if term.width is None else f"{term.transform}[{term.width}]"
    form = iceberg.types.Types.fromPrimitiveString(kind)
    transform = iceberg.transforms.Transforms.fromString(text)
    handles, named = java.invoke.MethodHandles, java.Class.forName
    parser, of_type = named("org.apache.iceberg.SingleValueParser"), named("org.apache.iceberg.types.Type")
    anything, texts = named("java.lang.Object"), named("java.lang.String")
    node = named("com.fasterxml.jackson.databind.JsonNode".replace("com.", "org.apache.iceberg.shaded.com."))

    def function(name: str, result: Any, argument: Any, first: Any) -> Any:
        parameters = spark.sparkContext._gateway.new_array(java.Class, 1)  # type: ignore[union-attr]
        parameters[0] = argument
        signature = java.invoke.MethodType.methodType(result, of_type, parameters)
        found = handles.publicLookup().findStatic(parser, name, signature).bindTo(first)
        kind_of_result = named("java.util.function.Function")
        return java.invoke.MethodHandleProxies.asInterfaceInstance(kind_of_result, found)

    whole = function("fromJson", anything, node, form).andThen(transform.bind(form))
    whole = whole.andThen(function("toJson", texts, anything, transform.getResultType(form)))
    read = iceberg.util.JsonUtil.mapper().readTree
    return [
        json.loads(whole.apply(read(json.dumps(value))))
        for value in json_values(pa.array(values, VALUES[kind][0]))
    ]


@pytest.mark.parametrize(("kind", "term"), CASES, ids=lambda one: str(one))
def test_a_transform_is_icebergs_own(spark: SparkSession, kind: str, term: Term) -> None:
    arrow, values = VALUES[kind]
    if term.transform == "truncate" and kind.startswith("decimal"):
        values = values[:-2]  # below, the result would have more digits than the type
    column = pa.array([*values, None, *values], arrow)[1:]
    may_overflow = term.transform == "truncate" and kind == "decimal(38, 2)"
    assert is_supported(term, arrow) != may_overflow
    found = json_values(transformed(term, column))
    assert found[len(values) - 1] is None
    assert list(map(_plain, found[len(values) :])) == list(map(_plain, judged(spark, kind, term, values)))


def _plain(value: Any) -> Any:
    """Iceberg leaves out zeros at the end of a second's fraction."""
    if not isinstance(value, str) or "T" not in value:
        return value
    return value.replace("+00:00", "").rstrip("0").rstrip(".:0")


def test_random_texts_hash_as_iceberg_does(spark: SparkSession) -> None:
    source = random.Random(7)
    texts = [
        "".join(chr(source.choice((65, 228, 0x65E5, 0x1F600))) for _ in range(n % 23)) for n in range(60)
    ]
    term = Term("bucket", "c", 2**31 - 1)
    assert json_values(transformed(term, pa.array(texts))) == judged(spark, "string", term, texts)
