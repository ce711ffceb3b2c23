"""Options by which targets have other rows than their tables: what is understood, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import config
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.model.transforms import MaskPart


def parsed(**options: Any) -> PipelineConfig:
    return config.parse(
        {
            "name": "p",
            "source": {"host": "h", "user": "u", "password": "never shown"},
            "tables": ["shop.*"],
            "state": "/tmp/none",
            **options,
        }
    )


def test_short_forms_are_understood() -> None:
    it = parsed(
        transforms=[{"tables": "shop.*", "mask": "name", "hash": "email", "exclude": "note"},
                    {"tables": ["shop.a"], "mask": {"card": {"keep_last": 4}, "x": None}}],
        transform_key="k" * 16,
        history="scd2",
        views={"v": {"sql": "SELECT 1;", "key": "a"}},
        completeness={"table": "penstock.{pipeline}_complete"},
    )  # fmt: skip
    first, second = it.transforms
    assert (first.mask, first.hash, first.exclude) == ({"name": "***"}, ("email",), ("note",))
    assert second.mask == {"card": MaskPart(keep_last=4), "x": None}
    assert it.history == {"*.*": "scd2"}
    assert (it.views["v"].sql, it.views["v"].key) == ("SELECT 1", ("a",))
    assert it.own_tables == [
        TableId("penstock", "p_schema_history"),
        TableId("penstock", "p_complete"),
        TableId("views", "v"),
    ]


VIEW = {"v": {"sql": "SELECT 1"}}
RULE = {"tables": "shop.*", "exclude": "note"}
KAFKA = {"type": "kafka", "bootstrap": "h:1"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"transforms": [{"tables": "shop.*", "hash": "email"}]}, "transform_key"),
        ({"transform_key": "short"}, "16 characters"),
        ({"transforms": [{"tables": "other.*", "exclude": "a"}]}, "no table"),
        ({"transforms": [RULE], "cascades": "apply"}, "cascades"),
        (
            {"transforms": [RULE], "sink": {**KAFKA, "options": {"include.query": True}}},
            "text of a statement",
        ),
        (
            {"transforms": [RULE],
             "sink": {**KAFKA, "format": "maxwell", "options": {"output_row_query": True}}},
            "text of a statement",
        ),
        (
            {"transforms": [{**RULE, "to": "{database}.x_{table}"}],
             "merge_shards": [{"tables": "shop.o_*", "into": "shop.orders"}]},
            "merge_shards",
        ),
        ({"history": {"other.*": "scd2"}}, "no table"),
        ({"history": {"orders": "scd2"}}, "database.table"),
        ({"history": "all"}, "scd2"),
        ({"history": "scd2", "sink": {"type": "parquet", "path": "/tmp/x"}}, "iceberg"),
        ({"history": "scd2", "cascades": "apply"}, "cascades"),
        ({"history": "scd2", "transforms": [{**RULE, "to": "x.{table}"}]}, "`to`"),
        ({"views": {"a b": {"sql": "SELECT 1"}}}, "plain name"),
        ({"views": {"shop.a": {"sql": "SELECT 1"}}}, "captured"),
        ({"views": {"v": {"sql": "SELECT 1"}}, "sink": {"type": "console"}}, "iceberg"),
        ({"views": {"v": {"sql": "SELECT 1", "functions": {"f": "module"}}}}, "module:object"),
        ({"dimensions": {"d": {"file": "a.csv"}}}, "there are none"),
        ({"views": VIEW, "dimensions": {"d": {}}}, "one of table, file and jdbc"),
        ({"views": VIEW, "dimensions": {"d": {"file": "a.csv", "table": "b"}}}, "one of table"),
        ({"views": VIEW, "dimensions": {"d": {"table": "a", "format": "csv"}}}, "only with file"),
        ({"views": VIEW, "dimensions": {"d": {"jdbc": {"url": "x:y", "query": "SELECT 1"}}}}, "no URL"),
        ({"views": VIEW, "dimensions": {"d": {"table": "a"}}, "tables": ["dimensions.*"]}, "captures"),
        ({"completeness": {"table": "a.b"}, "sink": {"type": "console"}}, "completeness.table"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_the_reason(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parsed(**options)
    assert "never shown" not in str(caught.value)


def test_messages_take_transforms_and_the_text_of_statements_where_nothing_is_hidden() -> None:
    query = {**KAFKA, "options": {"include.query": True}}
    parsed(transforms=[RULE], sink=KAFKA)
    parsed(transforms=[RULE], sink={**KAFKA, "options": {"include.query": False}})
    parsed(transforms=[{"tables": "shop.*", "rename": {"a": "b"}, "to": "x.{table}"}], sink=query)
