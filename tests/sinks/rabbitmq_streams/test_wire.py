"""Bytes of messages and ids. The judge is the decoder of RabbitMQ's own client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rstream import amqp_decoder

from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.sinks.rabbitmq_streams import wire
from penstock.sinks.rabbitmq_streams.options import RabbitMqStreamsOptions
from penstock.sinks.rabbitmq_streams.records import Written, count_of, id_of


@given(st.binary(), st.none() | st.binary() | st.text())
def test_another_decoder_finds_value_and_key(value: bytes, key: str | bytes | None) -> None:
    found = amqp_decoder(wire.message(value, key))
    assert bytes(found.body) == value
    given_ = (found.application_properties or {}).get(b"key")
    assert given_ == (key.encode() if isinstance(key, str) else key)


def test_a_record_is_read_as_it_was_written() -> None:
    record = Written(7, 1, "note", 3, "run", 12, 11, 12, ({"table": "a.b"},), {"a": 1}, {"s": 4})
    assert Written.parse(record.to_message(), "s") == record
    for wrong in (b"", b"x", wire.message(b"x", None), wire.message(b"{}", None), wire.message(b"[]", None)):
        with pytest.raises(ConfigError):
            Written.parse(wrong, "s")


@given(st.integers(0, 2**37 - 1), st.integers(1, 2**26 - 1), st.integers(0, 2**37 - 1))
def test_an_id_counts_only_for_the_epoch_that_is_not_committed(
    number: int, count: int, committed: int
) -> None:
    id = id_of(number, count)
    assert 0 < id < 2**63
    assert count_of(id, committed) == (count if number >= committed else 0)
    assert id < id_of(number + 1, 1)


def options(**more: Any) -> RabbitMqStreamsOptions:
    own = {"type": "rabbitmq-streams", "url": "rabbitmq-stream://h", "format": "json"}
    return RabbitMqStreamsOptions.model_validate({**own, **more})


def test_the_address_and_the_settings_of_streams() -> None:
    made = options(url="rabbitmq-stream+tls://h/a%2Fb", bytes_max="1GB", age_max="1h", replicas=3)
    assert made.addresses == [("h", 5551)] and made.virtual_host == "a/b" and made.tls_wanted
    assert made.arguments == {
        "max-length-bytes": "1000000000", "max-age": "3600s", "initial-cluster-size": "3",
    }  # fmt: skip
    assert options().addresses == [("h", 5552)] and options().virtual_host == "/"
    assert options(source="s").place_of(TableId("d", "t")) == "s.d.t"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"url": "amqp://h"}, "rabbitmq-stream://host:5552"),
        ({"url": "rabbitmq-stream://u:p@h"}, "sink.user"),
        ({"url": ["rabbitmq-stream://h", "rabbitmq-stream://h/v"]}, "same scheme"),
        ({"stream": "{other}"}, "may have {source}"),
        ({"format": "avro"}, "registry"),
    ],
)
def test_wrong_options_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        options(**more)
