"""Decoding by an outline gives what walking over all events gives; the walk is judged in `test_decode.py`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.logs import GTID, ROWS, TABLE_MAP, Event, decode_range, events, log_of, schema_of

from penstock import _core
from penstock.model.offset import Offset, Split
from penstock.model.schema import TableId
from penstock.relaylog.outline import Outlines
from penstock.testing import servers

TABLES = [TableId("d", name) for name in ("a", "b", "c", "d", "e")]


@pytest.fixture(scope="module")
def server() -> Iterator[servers.MySqlServer]:
    """Five tables, changed in turn and together; row events of 256 bytes, so that transactions have many."""
    chosen = random.Random(3)
    with servers.MySqlServer({"binlog_row_event_max_size": 256}) as running:
        running.execute(
            "CREATE DATABASE d", "CREATE DATABASE other",
            *[f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40), n INT)" for table in TABLES],
            "CREATE TABLE other.a LIKE d.a",
            "FLUSH BINARY LOGS",
        )  # fmt: skip
        for number in range(60):
            names = [str(chosen.choice([*TABLES, "other.a"])) for _ in range(chosen.randrange(1, 5))]
            many = ",".join(
                f"({number * 100 + row}, 'row {row}', {row})" for row in range(chosen.choice([1, 40]))
            )
            one_phase = number % 10 == 4
            running.execute(
                f"XA START 'x{number}'" if one_phase else "BEGIN",
                *[f"INSERT IGNORE INTO {name} VALUES {many}" for name in names],
                f"UPDATE {names[0]} SET n = n + 1 WHERE id % 3 = 0",
                f"DELETE FROM {names[-1]} WHERE id % 7 = {number % 7}",
                *([f"XA END 'x{number}'", f"XA COMMIT 'x{number}' ONE PHASE"] if one_phase else ["COMMIT"]),
            )  # fmt: skip
            if number % 20 == 9:
                # A new id for the table's maps, a definition as before.
                running.execute(f"ALTER TABLE {TABLES[0]} FORCE")
        yield running


def preamble_of(found: list[Event], path: str, start: int) -> tuple[tuple[str, Offset, Offset], ...]:
    """What a relay log says of a split that begins inside a transaction."""
    before = [event for event in found if event.end <= start]
    begin = max(n for n, event in enumerate(before) if event.kind == GTID)
    opened = before[begin:]
    if not any(event.kind in (*ROWS, TABLE_MAP) for event in opened):
        return tuple((path, Offset(0), Offset(event.offset)) for event in opened if event.kind == GTID)
    return tuple(
        (path, Offset(0), Offset(event.offset)) for event in opened if event.kind in (GTID, TABLE_MAP)
    )


def splits_of(path: str, bounds: list[int]) -> list[Split]:
    found = events(path)
    return [
        Split(path, Offset(0), Offset(start), Offset(end), preamble_of(found, path, start))
        for start, end in itertools.pairwise(bounds)
    ]


def test_every_cut_of_the_log_decodes_the_same_with_and_without_an_outline(
    server: servers.MySqlServer,
) -> None:
    path, size = log_of(server)
    schemas = {table: schema_of(server, str(table)) for table in TABLES}
    found = events(path)
    first = next(event for event in found if event.kind == GTID)
    ends = [event.end for event in found if event.offset >= first.offset]
    chosen = random.Random(5)
    seen = 0
    for _ in range(12):
        cuts = sorted({first.end, size, *chosen.sample(ends, chosen.randrange(0, 6))})
        splits = splits_of(path, cuts)
        outlines = Outlines(dict.fromkeys(TABLES, splits))
        for table, schema in schemas.items():
            for split in splits:
                positions = outlines.positions(table, split)
                assert positions is not None
                for layout in ("changelog", "latest"):
                    where = (schema, path, split.start, split.end)
                    walked = decode_range(*where, preamble=split.preamble, layout=layout)
                    outlined = decode_range(
                        *where, preamble=split.preamble, layout=layout, positions=positions
                    )
                    assert outlined.equals(walked), (table, split, layout)
                    seen += walked.num_rows
    assert seen > 10_000


def test_a_decoder_with_an_outline_reads_its_own_events_only(
    server: servers.MySqlServer, tmp_path: Path
) -> None:
    """Whatever is damaged in the events of another table is no matter of this one's decoder."""
    path, size = log_of(server)
    other = TABLES[1]
    split = Split(path, Offset(0), Offset(4), Offset(size))
    outlines = Outlines({table: [split] for table in TABLES})
    own = outlines.positions(TABLES[0], split)
    foreign = outlines.positions(other, split)
    assert own is not None and foreign is not None
    places = [
        {int.from_bytes(text[at : at + 8], "little") for at in range(0, len(text), 8)}
        for text in (own, foreign)
    ]
    data = bytearray(Path(path).read_bytes())
    damaged = 0
    for event in events(path):
        if event.offset in places[1] - places[0] and event.kind in ROWS:
            data[event.offset + 4 : event.end] = b"\xff" * (event.end - event.offset - 4)
            damaged += 1
    assert damaged > 10
    copy = tmp_path / "damaged.binlog"
    copy.write_bytes(data)
    schema = schema_of(server, str(TABLES[0]))
    walked = decode_range(schema, path, 4, size)
    assert decode_range(schema, str(copy), 4, size, positions=own).equals(walked)
    with pytest.raises(_core.DecodeError):
        decode_range(schema, str(copy), 4, size)


def test_few_tables_walk_by_themselves(server: servers.MySqlServer) -> None:
    path, size = log_of(server)
    split = Split(path, Offset(0), Offset(4), Offset(size))
    assert Outlines({table: [split] for table in TABLES[:3]}).positions(TABLES[0], split) is None
    # A table of which nothing was said, and a part that was not looked at.
    outlines = Outlines({table: [split] for table in TABLES[:4]})
    assert outlines.positions(TABLES[0], split) is not None
    assert outlines.positions(TABLES[4], split) is None
    assert outlines.positions(TABLES[0], Split(path, Offset(0), Offset(4), Offset(size + 1))) is None


def test_a_damaged_log_is_left_to_the_decoders(server: servers.MySqlServer, tmp_path: Path) -> None:
    path, size = log_of(server)
    data = bytearray(Path(path).read_bytes())
    middle = next(event for event in events(path) if event.offset > size // 2 and event.kind == TABLE_MAP)
    data[middle.offset + 25] ^= 0xFF
    copy = tmp_path / "damaged.binlog"
    copy.write_bytes(data)
    split = Split(str(copy), Offset(0), Offset(4), Offset(size))
    assert Outlines({table: [split] for table in TABLES}).positions(TABLES[0], split) is None
    gone = Split(str(tmp_path / "gone"), Offset(0), Offset(4), Offset(size))
    assert Outlines({table: [gone] for table in TABLES}).positions(TABLES[0], gone) is None
