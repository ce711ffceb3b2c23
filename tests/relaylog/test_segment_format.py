"""A relay log says what its segments hold; nobody reads or writes segments of a format that is not known."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.relaylog.conftest import SPAN_SIZE, TABLES, Received

from penstock._core import Framer
from penstock.commands.inspect import log_files
from penstock.config import RelayLogConfig
from penstock.errors import ConfigError
from penstock.model.offset import LogRange, Offset
from penstock.relaylog.index import Entry, encode, parse_lines
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import SEGMENT_FORMATS
from penstock.relaylog.writer import RelayLogWriter
from penstock.sources.mysql.binlog_position import LastTransaction

CONFIG = RelayLogConfig(disk_free_min=0, span_size=SPAN_SIZE)


@pytest.fixture
def folder(received: Received, tmp_path: Path) -> Path:
    copy = tmp_path / "relay"
    shutil.copytree(received.folder, copy)
    return copy


def with_earlier_names(folder: Path) -> int:
    """Gives fields of all index entries the names that they had in 0.1.0. Returns how many spans begin inside
    a transaction."""
    opened = 0
    for path in folder.glob("*.index"):
        entries = parse_lines(path.read_bytes(), path)
        for fields in (entry.fields for entry in entries):
            for part in (fields, fields.get("head") or {}):
                if "executed" in part:
                    part["gtids"] = part.pop("executed")
            if "last" in fields:
                fields["last"]["gtid"] = fields["last"].pop("id")
            if "open" in fields:
                begun, *maps = fields["open"]
                named = {f"shop.{number}": offset for number, offset in enumerate(maps)}
                fields["open"] = {"gtid_event": begun, "table_maps": named}
                opened += 1
        path.write_bytes(encode(entries))
    return opened


def test_a_log_with_the_earlier_names_of_fields_is_read_and_continued(
    received: Received, folder: Path
) -> None:
    assert with_earlier_names(folder) > 10
    log = RelayLog.open(folder)
    for at in map(Offset, received.walk.ends[::7]):
        assert str(log.executed_at(at)) == str(received.log.executed_at(at))
    for table in TABLES:
        whole = LogRange(log.start, log.end)
        expected = [
            (one.start, [at for *_, at in one.preamble])
            for one in received.log.splits(whole, table, bytes_aim=SPAN_SIZE)
        ]
        found = [
            (one.start, [at for *_, at in one.preamble])
            for one in log.splits(whole, table, bytes_aim=SPAN_SIZE)
        ]
        assert found == expected
    assert LastTransaction.of(log) == LastTransaction.of(received.log)
    RelayLogWriter(folder, CONFIG).close()
    assert str(RelayLog.open(folder).executed_at(log.end)) == str(received.log.executed_at(log.end))


def test_an_entry_that_is_cut_before_its_end_does_not_say_what_was_prepared() -> None:
    fields = {
        "start": 0,
        "end": 30,
        "committed": 20,
        "prepared": [{"xid": "a"}],
        "file": "b.1",
        "position": 9,
    }
    assert Entry(fields).trimmed(Offset(20)).prepared == [{"xid": "a"}]
    assert Entry(fields).trimmed(Offset(10)).prepared == []


def change(folder: Path, **fields: object) -> None:
    """Writes fields into `relay.json`; those that are None are removed."""
    path = folder / "relay.json"
    relay = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in relay.items() if value is not None}))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_log_that_a_receiver_creates_names_the_format_of_its_segments(received: Received) -> None:
    assert json.loads((received.folder / "relay.json").read_text())["segment_format"] == "mysql-binlog"


def test_a_log_without_a_segment_format_is_read_and_written_as_binlog(
    received: Received, folder: Path
) -> None:
    change(folder, segment_format=None)
    assert RelayLog.open(folder).end == received.log.end
    writer = RelayLogWriter(folder, CONFIG)
    writer.close()
    assert writer.end == received.log.end


@pytest.mark.parametrize("name", ["postgres-wal", "", 7, ["mysql-binlog"]])
def test_a_reader_refuses_an_unknown_segment_format_and_names_format_and_log(
    folder: Path, name: object
) -> None:
    change(folder, segment_format=name)
    for read in (RelayLog.open, lambda path: log_files(str(path))):
        with pytest.raises(ConfigError) as refused:
            read(folder)
        assert json.dumps(name) in refused.value.message
        assert str(folder) in refused.value.message
        assert refused.value.details["segment_format"] == name


def test_a_writer_refuses_an_unknown_segment_format_before_it_touches_anything(folder: Path) -> None:
    change(folder, segment_format="postgres-wal")
    before = contents(folder)
    with pytest.raises(ConfigError, match="postgres-wal"):
        RelayLogWriter(folder, CONFIG)
    assert contents(folder) == before


def test_the_formats_that_are_accepted_are_those_of_the_core() -> None:
    listed = Path(__file__).resolve().parents[2] / "core" / "src" / "python" / "segment_format.rs"
    variants = re.search(r"pub enum Named \{([^}]*)\}", listed.read_text())
    assert variants is not None and len(variants[1].split()) == len(SEGMENT_FORMATS)

    def framer(name: str) -> Framer:
        return Framer(offset=0, segment_size=1, span_size=1, server_uuid="s", segment_format=name)

    for name in SEGMENT_FORMATS:
        framer(name)
    with pytest.raises(ValueError, match="no segment format"):
        framer("another")
