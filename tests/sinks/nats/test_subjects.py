"""Names of databases and tables in subjects."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.model.schema import TableId
from penstock.sinks.nats.options import NatsOptions
from penstock.sinks.nats.subjects import escaped, is_covered


@given(st.text(min_size=1))
def test_a_name_is_one_token_and_a_decoder_of_urls_gives_it_back(name: str) -> None:
    assert re.fullmatch(r"[!-~]+", escaped(name)) and not re.search(r"[.*>$]", escaped(name))
    assert unquote(escaped(name)) == name


def test_common_names_stay_as_they_are() -> None:
    assert escaped("order_items-2") == "order_items-2"
    assert escaped("a.b c*>$ä%") == "a%2Eb%20c%2A%3E%24%C3%A4%25"


@pytest.mark.parametrize(
    ("subject", "pattern", "covered"),
    [
        ("a.b.c", "a.b.c", True),
        ("a.b.c", "a.*.c", True),
        ("a.b.c", "a.>", True),
        ("a.b.c", ">", True),
        ("a", "a.>", False),
        ("a.b", "a.*.c", False),
        ("a.b.c", "a.*", False),
        ("b.b", "a.>", False),
    ],
)
def test_wildcards_cover_what_the_server_says(subject: str, pattern: str, covered: bool) -> None:
    assert is_covered(subject, [pattern]) == covered


def options(**more: Any) -> NatsOptions:
    return NatsOptions.model_validate({"type": "nats", "url": "nats://h", "format": "json", **more})


def test_the_subject_of_a_table_has_its_names() -> None:
    assert options(source="shop").place_of(TableId("a.b", "{source}")) == "shop.a%2Eb.{source}"
    assert options().stream_name == "penstock" and options(source="eu.shop").stream_name == "eu_shop"
    assert options().stream_subjects == ("penstock", "penstock.>")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subject": "{other}"}, "may have {source}"),
        ({"subject": "a..{table}"}, "no subject"),
        ({"subject": "{source}.*.{table}"}, "wildcard"),
        ({"source": "a b"}, "no subject"),
        ({"transaction_subject": "{table}"}, "not about one table"),
        ({"subjects": ["other.>"]}, "fence_subject"),
        ({"url": "http://h"}, "nats://host:4222"),
        ({"url": "nats://u:p@h"}, "sink.user"),
        ({"url": ["nats://h", "tls://h"]}, "same scheme"),
        ({"user": "u", "token": "t"}, "use one of"),
        ({"format": "avro"}, "registry"),
        ({"stream": "a.b"}, "pattern"),
    ],
)
def test_wrong_options_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        options(**more)
