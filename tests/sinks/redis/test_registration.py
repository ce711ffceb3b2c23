"""The options of the sink `redis`. What it writes is tested in `tests/sinks/conformance`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from penstock.model.schema import TableId
from penstock.sinks.redis.options import RedisOptions


def options(key: str) -> RedisOptions:
    return RedisOptions(type="redis", url="redis://127.0.0.1:6379/0", key=key)


@pytest.mark.parametrize("key", ["{table}_{key}", "{table}{key}", "{database}.{table}/{key}", "{key}", "x"])
def test_keys_that_could_begin_like_those_of_another_table_are_refused(key: str) -> None:
    with pytest.raises(ValidationError, match=r"before|ends in"):
        options(key)


@pytest.mark.parametrize("key", ["{database}:{table}:{key}", "{table}:{key}", "{table}_v2:{key}"])
def test_no_tables_keys_begin_like_those_of_another(key: str) -> None:
    names = ["a", "a_v2", "a:b", "a:", "a%3A", "a_"]
    prefixes = [options(key).prefix(TableId("d", name)) for name in names]
    assert not [(x, y) for x in prefixes for y in prefixes if x != y and y.startswith(x)]
    assert len(set(prefixes)) == len(names)
