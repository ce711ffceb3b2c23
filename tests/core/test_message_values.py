"""Values of encoded messages, as a sequence that copies only what is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock._core import EncodedMessages, LogEncoder, MessageValues, repeated_field

LOG = Path(__file__).parents[2] / "core" / "bench" / "orders.binlog"


@pytest.fixture(scope="module")
def step() -> EncodedMessages:
    found = LogEncoder([(str(LOG), 0, 0, None, [])], "canal-entry").read()
    assert isinstance(found, EncodedMessages)
    return found


def test_values_are_those_of_the_messages(step: EncodedMessages) -> None:
    expected = [value for _, _, value, _ in step.messages()]
    values = step.values()
    assert len(values) > 5 and list(values) == expected
    assert values.sizes() == [len(value or b"") for value in expected]
    assert [values[at] for at in (0, 3, -1)] == [expected[at] for at in (0, 3, -1)]
    for at in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            values[at]


def test_a_part_is_cut_as_from_a_list(step: EncodedMessages) -> None:
    values = step.values()
    expected = list(values)
    for part in (slice(2, 5), slice(None, 3), slice(3, None), slice(4, 2), slice(-2, None), slice(0, 10**9)):
        assert isinstance(values[part], MessageValues)
        assert list(values[part]) == expected[part]
    assert list(step.values(2, 5)) == expected[2:5]
    assert list(values[2:6][1:3]) == expected[3:5]
    with pytest.raises(TypeError):
        values[::2]


def test_begins_and_ends_of_transactions_can_be_left_out(step: EncodedMessages) -> None:
    expected = [value for table, _, value, _ in step.messages() if table is not None]
    assert 0 < len(expected) < len(step)
    assert list(step.values(rows=True)) == expected


def test_ends_are_those_of_the_transactions(step: EncodedMessages) -> None:
    expected = [(one["end"], one["messages_end"], one["commit_us"]) for one in step.transactions()]
    assert step.ends() == expected != []


def test_a_repeated_field_has_the_values_of_all_sequences(step: EncodedMessages) -> None:
    values = step.values(0, 3)
    plain = [b"", b"x" * 127, b"y" * 128]
    heads = (b"\x12\x00", b"\x12\x7f", b"\x12\x80\x01")
    expected = b"".join(head + value for head, value in zip(heads, plain, strict=True))
    assert repeated_field(2, [plain, ()]) == expected
    assert repeated_field(2, [values]) == repeated_field(2, [list(values)])
    assert repeated_field(2, [plain, values]) == expected + repeated_field(2, [values])
    with pytest.raises(TypeError):
        repeated_field(2, [["text"]])  # type: ignore[list-item]
