"""Places that readers keep themselves."""

from __future__ import annotations

import pytest

from penstock.model.offset import Offset
from penstock.serve.batches import Block, Piece, Place
from penstock.serve.destination import Destinations
from penstock.serve.listeners.events import rendered_as_events
from penstock.serve.subscription import Refused


def test_a_place_in_the_log_of_another_server_is_refused() -> None:
    one, two, alone = Destinations(), Destinations(), Destinations()
    one.mark, two.mark = "aaaa1111", "bbbb2222"
    place = Place(Offset(7), 3)
    assert one.place_of(one.text_of(place)) == place
    assert alone.place_of(alone.text_of(place)) == place and alone.text_of(place) == "7.3"
    for other in (two, alone):
        with pytest.raises(Refused, match="not one of this server's"):
            other.place_of(one.text_of(place))
    with pytest.raises(Refused):
        one.place_of("7.3")
    with pytest.raises(ValueError, match="place"):
        one.place_of("x@aaaa1111")


def test_events_have_the_mark_in_their_ids() -> None:
    block = Block([Piece(Place(Offset(7)), [b"{}", b"{}"], Offset(9))])
    assert rendered_as_events("aaaa1111")(block) == (
        b"id: 7.1@aaaa1111\ndata: {}\n\nid: 9.0@aaaa1111\ndata: {}\n\n"
    )
    assert rendered_as_events("")(block).startswith(b"id: 7.1\n")
    assert rendered_as_events("") is rendered_as_events("")
