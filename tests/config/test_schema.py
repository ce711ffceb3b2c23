"""The JSON Schema accepts and refuses what the models do. The package `jsonschema` judges by the schema,
`config.load` by the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.config.options import sections
from penstock.config.schema import SCHEMA_FILE
from penstock.errors import ConfigError

BASE: dict[str, Any] = {"name": "shop", "source": {"user": "cdc"}, "tables": ["shop.*"], "state": "state"}
VALIDATOR = Draft7Validator(json.loads(SCHEMA_FILE.read_text("utf-8")))

ACCEPTED: list[dict[str, Any]] = [
    {},
    {"source": {"user": "cdc", "host": ["a", "b:3307"], "port": "3306", "password": "${SECRET}"}},
    {"source": {"user": "cdc", "port": "${PORT}", "tls": "${TLS}", "allow_cleartext_password": "${YES}"}},
    {"tables": "shop.*"},
    {"tables": {"include": ["shop.*"], "exclude": ["shop.old"]}},
    {"source": {"user": "cdc", "start": "earliest"}},
    {"source": {"user": "cdc", "start": {"file": "binlog.000001", "position": 4}}},
    {"source": {"user": "cdc", "watermark_table": "ops.marks"}},
    {
        "relay_log": {
            "segment_size": "256MiB",
            "segment_age": "1.5 h",
            "span_size": 4194304,
            "keep_size": "12",
        }
    },
    {"snapshot": {"pause_when_behind": "${SIZE}", "load": {"threads_running_max": None}}},
    {"stop_timeout": "${WAIT}"},
    {"sink": {"type": "parquet", "path": "/lake"}},
    {"types": {"decimal": "string"}, "schema": {"history_table": None}, "cascades": "park"},
    {"merge_shards": [{"tables": ["shop.*"], "into": "shop.all"}]},
    {"http": {"tokens": {"a": {"token": "0123456789abcdef"}}, "listen": "[::1]:0"}},
    {"spark": {"conf": {"spark.ui.enabled": "true"}}},
]
REFUSED: list[dict[str, Any]] = [
    {"name": "1st"},
    {"name": "shop", "sorce": {}},
    {"source": {}},
    {"source": {"user": "cdc", "port": 0}},
    {"source": {"user": "cdc", "port": "x"}},
    {"source": {"user": "cdc", "password": 12}},
    {"source": {"user": "cdc", "host": []}},
    {"source": {"user": "cdc", "tls": "yes"}},
    {"tables": []},
    {"tables": {"exclude": ["shop.*"]}},
    {"source": {"user": "cdc", "start": "now"}},
    {"start": "earliest"},
    {"stop_timeout": 999},
    {"stop_timeout": "10"},
    {"stop_timeout": "10 sec"},
    {"relay_log": {"segment_size": "256 MiBs"}},
    {"relay_log": {"segment_size": -1}},
    {"epoch": {"tables_parallel": 257}},
    {"epoch": {"tables_parallel": 1.5}},
    {"snapshot": {"load": {"threads_running": 4}}},
    {"types": {"decimal": "exact"}},
    {"types": {"decimals": "string"}},
    {"merge_shards": [{"tables": "shop.*"}]},
    {"http": {}},
    {"signals": {"table": "signals"}},
    {"spark": {"conf": {"spark.cores.max": 4}}},
    {"cascades": True},
]


def loads(document: dict[str, Any], folder: Path) -> bool:
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(document))
    try:
        configuration.load(file)
    except ConfigError:
        return False
    return True


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(VALIDATOR.schema)


@pytest.mark.parametrize("change", ACCEPTED, ids=str)
def test_what_a_pipeline_takes_the_schema_takes(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"SECRET": "x", "PORT": "3306", "TLS": "required", "YES": "true", "SIZE": "1GiB", "WAIT": "20s"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    document = BASE | change
    assert loads(document, tmp_path)
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize("change", REFUSED, ids=str)
def test_what_a_pipeline_refuses_the_schema_marks(change: dict[str, Any], tmp_path: Path) -> None:
    document = BASE | change
    assert not loads(document, tmp_path)
    assert not VALIDATOR.is_valid(document)


def test_every_option_is_in_the_schema_with_its_text() -> None:
    texts = json.dumps(VALIDATOR.schema, ensure_ascii=False)
    for section in sections(PipelineConfig):
        for option in section.options:
            assert json.dumps(option.name.rpartition(".")[2]) in texts
            assert json.dumps(option.text, ensure_ascii=False) in texts, option.name
