"""What errors of Redis become."""

from __future__ import annotations

import pytest
from redis import exceptions

from penstock.model.schema import TableId
from penstock.sinks.redis.faults import explained

TABLE = TableId("shop", "orders")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "(WRONGTYPE)"),
        (
            "The ID specified in XADD must be greater than 0-0",
            "(The ID specified in XADD must be greater than 0-0)",
        ),
        ("unknown command 'X', with args beginning with: 'secret'", "beginning with)"),
    ],
)
def test_an_error_has_its_code_or_else_its_text_without_values(text: str, told: str) -> None:
    error = explained(exceptions.ResponseError(text), "A stream cannot be written", TABLE)
    assert told in error.message and "secret" not in error.message
