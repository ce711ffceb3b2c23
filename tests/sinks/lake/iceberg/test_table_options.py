"""The section `sink.tables`: what it accepts, and what it refuses with which words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.model.schema import TableId
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.iceberg.table_options import TableShape
from penstock.sinks.lake.terms import Order, Term

ORDERS = TableId("shop", "orders")


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("region", Term("identity", "region")),
        ("days(created)", Term("day", "created")),
        ("DAY( created )", Term("day", "created")),
        ("years(a)", Term("year", "a")),
        ("months(a)", Term("month", "a")),
        ("hours(a)", Term("hour", "a")),
        ("bucket(16, id)", Term("bucket", "id", 16)),
        ("truncate(4,code)", Term("truncate", "code", 4)),
        ("bucket(2, `a, (b)`)", Term("bucket", "a, (b)", 2)),
        ("`a``b`", Term("identity", "a`b")),
        ("größe", Term("identity", "größe")),
    ],
)
def test_a_term_is_written_as_in_icebergs_sql(text: str, term: Term) -> None:
    assert Term.parse(text) == term
    assert Term.parse(str(term)) == term


@pytest.mark.parametrize(
    "text",
    ["", "day(a", "bucket(id, 16)", "bucket(0, id)", "bucket(id)", "week(a)", "a b", "bucket(9999999999, a)"],
)
def test_what_is_no_term_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`" if text else "not understood"):
        Term.parse(text)


def test_null_stands_where_icebergs_sql_puts_it() -> None:
    created = Term("identity", "created")
    assert Order.parse("created") == Order.parse("created ASC") == Order(created, False, True)
    assert Order.parse("created desc") == Order(created, True, False)
    assert Order.parse("created desc nulls first") == Order(created, True, True)
    assert Order.parse("bucket(4, id) nulls last") == Order(Term("bucket", "id", 4), False, False)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"partition_by": ["week(a)"]}, "`week(a)` is not understood"),
        ({"partition_by": "bucket(4, _sequence)"}, "Penstock itself writes"),
        ({"partition_by": ["days(a)", "hours(a)"]}, "say the same twice"),
        ({"sort_by": ["a", "a desc"]}, "say the same twice"),
        ({"properties": {"format-version": 2}}, "format-version is set by Penstock"),
        ({"format_version": 1}, "Input should be 2 or 3"),
        ({"properties": {"penstock.commit": "x"}}, "penstock.commit is set by Penstock"),
        ({"properties": {"write.merge.mode": "copy-on-write"}}, "write.merge.mode is set"),
        ({"properties": {"write.format.default": "csv"}}, "must be one of parquet, orc, avro"),
        ({"properties": {"write.parquet.compression-codec": "zip"}}, "must be one of zstd"),
        ({"location": "/lake"}, "must be a URL"),
        ({"location": "s3://bucket/{database}"}, "must contain {table}"),
        ({"match": "*.orders", "location": "s3://bucket/orders"}, "must contain {database}"),
        ({"match": "orders"}, "names no database"),
        ({"match": []}, "at least one table"),
        ({"partitions": ["a"]}, "Extra inputs"),
    ],
)
def test_an_entry_that_cannot_work_is_refused_before_the_start(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TableShape.model_validate({"match": "shop.*", **entry})
    assert words in str(refused.value)


def test_the_first_entry_that_matches_counts() -> None:
    options = IcebergOptions.model_validate(
        {
            "tables": [
                {"match": "shop.orders", "partition_by": "region"},
                {"match": ["shop.*", "log.*"], "partition_by": ["days(created)"]},
            ]
        }
    )
    found = [options.shape(TableId(*name.split("."))) for name in ("shop.orders", "log.x", "a.b")]
    assert [one and one.partition_by for one in found] == [("region",), ("days(created)",), None]


def test_each_target_has_a_location_of_its_own() -> None:
    shape = TableShape.model_validate({"match": "*.*", "location": "s3://b/{database}/x/{table}/"})
    assert shape.location_of(ORDERS) == "s3://b/shop/x/orders"
    assert shape.location_of(TableId("a/b", "{database}?")) == "s3://b/a@002fb/x/@007bdatabase@007d@003f"


def test_a_hadoop_catalog_takes_no_location() -> None:
    entry = {"match": "shop.orders", "location": "s3://bucket/orders"}
    for place in ({"path": "/lake"}, {"catalog": {"type": "hadoop", "warehouse": "/lake"}}):
        with pytest.raises(ValidationError, match="leave out `location`"):
            IcebergOptions.model_validate({**place, "tables": [entry]})
