"""Which SQL may stand in the WHERE clause of a partial snapshot."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.sources.mysql.condition import LEXIS


@pytest.mark.parametrize(
    "text",
    [
        "id > 5",
        "kind = 'a;b)--' AND (n = 1 OR n = 2)",
        "x = \"(\" or y='it''s'",
        "a = '\\''",
        "`table` = 'select with values'",
    ],
)
def test_a_plain_condition_is_one(text: str) -> None:
    assert LEXIS.is_plain(text)
    LEXIS.check_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        "1) UNION (SELECT 1",
        "1; DROP TABLE x",
        "1 -- x",
        "1 /* x",
        "(1",
        "1)",
        "'x",
        "id IN (SELECT 1)",
        "1 # x",
        "EXISTS (TABLE mysql.user)",
        "(1, 2) IN (VALUES ROW(1, 2))",
        "id IN (WITH x AS (TABLE t) TABLE x)",
        "1 INTO OUTFILE '/tmp/x'",
        "a = '\\'",
    ],
)
def test_what_is_more_than_a_condition_is_not_one(text: str) -> None:
    assert not LEXIS.is_plain(text)
    with pytest.raises(ConfigError, match="is not a plain SQL condition"):
        LEXIS.check_plain(text)
