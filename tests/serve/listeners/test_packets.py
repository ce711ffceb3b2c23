"""Packets, beside Google's Protobuf library."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.entry import CanalEntry

from penstock.model.offset import Offset
from penstock.serve.batches import Block, Piece, Place
from penstock.serve.listeners import packets
from penstock.serve.listeners.protobuf import BadPacket

TEXT = st.text(max_size=20)
NUMBER = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)


@given(TEXT, TEXT, NUMBER, LONG, st.integers(0, 6), st.booleans())
def test_a_get_is_read_as_it_was_written(
    destination: str, client: str, size: int, timeout: int, unit: int, auto: bool
) -> None:
    body = CanalEntry.Get(
        destination=destination, client_id=client, fetch_size=size, timeout=timeout, unit=unit, auto_ack=auto
    ).SerializeToString()
    found = packets.parse_get(body)
    assert (found.destination, found.client_id, found.size, found.auto_ack) == (
        destination, client, size, auto,
    )  # fmt: skip
    seconds = timeout * (1e-9, 1e-6, 1e-3, 1, 60, 3600, 86400)[unit]
    expected = None if timeout < 0 else pytest.approx(min(seconds, packets.TIMEOUT_S_MAX))
    assert found.timeout == expected


def test_a_unit_that_does_not_exist_counts_only_with_a_timeout() -> None:
    """canal-python sends -1 for both."""
    asked = CanalEntry.Get(destination="d", client_id="1", fetch_size=9, timeout=-1, unit=-1)
    assert packets.parse_get(asked.SerializeToString()).timeout is None
    asked.timeout = 5
    with pytest.raises(BadPacket, match="unit"):
        packets.parse_get(asked.SerializeToString())


def test_a_get_without_timeout_and_unit_does_not_wait() -> None:
    data = b"\x0a\x01d\x12\x011\x18\x05"
    assert packets.parse_get(data) == packets.Get("d", "1", 5, None, False)


@given(TEXT, st.binary(max_size=60), TEXT)
def test_a_login_is_read_as_it_was_written(user: str, password: bytes, filter: str) -> None:
    body = CanalEntry.ClientAuth(
        username=user, password=password, net_read_timeout=3600000, filter=filter, start_timestamp=-1
    ).SerializeToString()
    found = packets.parse_auth(body)
    assert (found.user, found.password, found.filter) == (user, password, filter)


@given(TEXT, TEXT, LONG)
def test_an_acknowledgement_is_read_as_it_was_written(destination: str, client: str, batch: int) -> None:
    body = CanalEntry.BatchOf(destination=destination, client_id=client, batch_id=batch)
    assert packets.parse_batch(body.SerializeToString()) == packets.BatchOf(destination, client, batch)


@given(st.integers(-1, 2**62), st.lists(st.binary(max_size=5000), max_size=5))
def test_a_batch_is_what_the_library_reads(batch: int, entries: list[bytes]) -> None:
    data = b"".join(packets.messages(batch, [Block([Piece(Place(Offset(0)), entries)])]))
    assert struct.unpack(">i", data[:4]) == (len(data) - 4,)
    packet = CanalEntry.Packet.FromString(data[4:])
    assert (packet.type, packet.version, packet.compression) == (7, 1, 0)
    found = CanalEntry.Messages.FromString(packet.body)
    assert (found.batch_id, list(found.messages)) == (batch, entries)


def test_the_handshake_and_refusals_are_what_the_library_reads() -> None:
    packet = CanalEntry.Packet.FromString(packets.handshake(b"12345678")[4:])
    assert packet.type == 1 and packet.version == 1
    assert CanalEntry.Handshake.FromString(packet.body).seeds == b"12345678"
    packet = CanalEntry.Packet.FromString(packets.refused(404, "no")[4:])
    found = CanalEntry.Ack.FromString(packet.body)
    assert (packet.type, found.error_code, found.error_message) == (3, 404, "no")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for parse in (
        packets.parse_packet, packets.parse_auth, packets.parse_get, packets.parse_batch,
        packets.parse_subscribe,
    ):  # fmt: skip
        try:
            parse(data)
        except BadPacket:
            continue


@pytest.mark.parametrize(
    "data",
    [
        b"\x2a\xff\xff\xff\xff\x0fabc",  # a field of 4 GiB
        b"\x18" + b"\xff" * 11,  # a number without end
        b"\x00\x01",  # field 0
        b"\x0b",  # a group
        b"\x0d\x01",  # a cut number of fixed length
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadPacket):
        packets.parse_packet(data)
