"""What clients have acknowledged, in files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Place, Places
from penstock.serve.filters import Filter
from penstock.serve.log.destination_log import Clients
from penstock.serve.log.merged_log import MergedLog
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.source_log import SourceLog
from penstock.serve.log.view import View
from penstock.serve.positions import InFiles, Subscribed
from penstock.serve.settings import DestinationSection
from penstock.sources.log_start import LogStart

EARLIER = {"1001": Subscribed(Place(Offset(100)), ""), "b": Subscribed(Place(Offset(7), 3), r"shop\.é")}
LATER = {"1001": Subscribed(Place(Offset(200)), "")}


class Logs:
    """Places in some logs, by their ids."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def stored(self, place: AnyPlace) -> dict[str, Place]:
        return dict(zip(self._ids, place.each if isinstance(place, Places) else (place,), strict=True))

    def restored(self, places: Mapping[str, Place], /) -> AnyPlace | None:
        if not all(one in places for one in self._ids):
            return None
        found = tuple(places[one] for one in self._ids)
        return Places(found) if len(found) > 1 else found[0]


def in_files(folder: Path, *ids: str) -> InFiles:
    return InFiles(folder, dict.fromkeys(("example", "another"), Logs(*ids or ("log",))))


def test_positions_are_what_was_stored_last(tmp_path: Path) -> None:
    positions = in_files(tmp_path)
    assert positions.load("example") == {}
    positions.store("example", EARLIER, durable=False)
    assert in_files(tmp_path).load("example") == EARLIER
    positions.store("example", LATER, durable=False)
    positions.store("example", EARLIER, durable=True)
    assert in_files(tmp_path).load("example") == LATER
    assert positions.load("another") == {}


def test_a_file_that_a_power_loss_has_damaged_is_replaced_by_the_safe_one(tmp_path: Path) -> None:
    positions = in_files(tmp_path)
    positions.store("example", EARLIER, durable=False)
    path = tmp_path / "destination-example.json"
    for damaged in (b"", b"{", b"[]", b'{"relay_log": "log", "clients": {"1": {}}}'):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="cannot be read"):
            positions.load("example")
    positions.store("example", EARLIER, durable=True)
    assert positions.load("example") == EARLIER


def test_in_an_event_loop_what_several_clients_acknowledge_is_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
        written.append(data)
        path.write_bytes(data)

    monkeypatch.setattr("penstock.serve.positions.replace_file", replace_file)
    positions = in_files(tmp_path)

    async def acknowledge(number: int) -> None:
        known = {f"client-{number}": Subscribed(Place(Offset(number)))}
        positions.store("example", known, durable=False)
        await positions.settled("example")
        assert in_files(tmp_path).load("example")  # it is stored

    async def all_of_them() -> None:
        await asyncio.gather(*map(acknowledge, range(50)))

    asyncio.run(all_of_them())
    assert len(written) == 1 and list(in_files(tmp_path).load("example")) == ["client-49"]


def test_a_disk_that_is_full_is_told_and_written_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = in_files(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async def told() -> None:
        with monkeypatch.context() as patched:
            patched.setattr("penstock.serve.positions.replace_file", full)
            positions.store("example", LATER, durable=False)
            for _ in range(2):
                with pytest.raises(OSError, match="space"):
                    await positions.settled("example")
        await positions.settled("example")

    asyncio.run(told())
    assert in_files(tmp_path).load("example") == LATER


def test_positions_of_another_log_are_refused(tmp_path: Path) -> None:
    in_files(tmp_path).store("example", EARLIER, durable=False)
    with pytest.raises(ConfigError, match="another relay log"):
        in_files(tmp_path, "another").load("example")


def test_a_place_inside_of_a_transaction_counts_the_entries_of_one_view(tmp_path: Path) -> None:
    """Another filter in the server's file has other entries, so that the transaction comes again."""
    filters = ("", r"shop\..*")
    views = [View.of(DestinationSection(filter=one), Filter((one,))).digest for one in filters]
    known = {"inside": Subscribed(Place(Offset(7), 3), "", views[0])}
    in_files(tmp_path).store("example", known, durable=False)
    found = in_files(tmp_path).load("example")["inside"]
    assert [found.counted_by(one).place for one in views] == [Place(Offset(7), 3), Place(Offset(7))]
    at_end = Subscribed(Place(Offset(7)), "", views[0])
    assert at_end.counted_by(views[1]) == Subscribed(Place(Offset(7)), "", views[1])


class OfLog:
    """The part of `ServedLog` that finds places."""

    def __init__(self, log_id: str, *, end: int) -> None:
        self.id = log_id
        self.end = Offset(end)
        self.is_merged = False

    def place_in(self, log_id: str, place: Place) -> Place | None:
        return place if log_id == self.id else None

    def offset_of(self, _start: LogStart) -> Offset:
        return self.end


def merged(*ids: str) -> MergedLog:
    threads, served = cast(Any, None), {one: cast(ServedLog, OfLog(one, end=90)) for one in ids}
    logs = {one: SourceLog(log, Path(), threads, Clients()) for one, log in served.items()}
    return MergedLog(logs, Clients(), LogStart(at="latest"))


def test_a_log_that_was_replaced_is_not_taken_for_that_of_a_new_source() -> None:
    """Its clients would miss what is between their place and the destination's `start`."""
    east, west = Place(Offset(5)), Place(Offset(7), 3)
    assert merged("east", "west").restored({"west": west, "east": east}) == Places((east, west))
    assert merged("east", "west").restored({"east": east}) == Places((east, Place(Offset(90))))
    assert merged("east").restored({"west": west, "east": east}) == Places((east,))
    assert merged("east", "west").restored({"west-before": west, "east": east}) is None
    assert merged("east", "west").restored({"another": west}) is None


def test_places_in_several_logs_are_found_by_the_ids_of_these(tmp_path: Path) -> None:
    place = Places((Place(Offset(5)), Place(Offset(7), 3)))
    in_files(tmp_path, "a", "b").store("example", {"1001": Subscribed(place, "x")}, durable=False)
    turned = Places(place.each[::-1])
    assert in_files(tmp_path, "b", "a").load("example") == {"1001": Subscribed(turned, "x")}
    assert in_files(tmp_path, "a").load("example") == {"1001": Subscribed(place.each[0], "x")}
