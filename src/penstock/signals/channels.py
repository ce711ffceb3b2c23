"""The channels over which signals arrive: a file, and a table of the source. `topic.py`: a topic of Kafka.
`opening.py` opens those that the pipeline file names.

Each channel stores its read position in the same transaction that accepts the signals it has read. So no
signal is lost or accepted twice, even if the pipeline is killed.

Input that is not a signal (not JSON, no id, a row with other columns) is skipped with a warning in the log.
The warning says where the input is and what is wrong with it, but never quotes it."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from penstock import _core
from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.model.change import CHANGE_TYPE, SEQUENCE
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.model.signal import Signal
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_bytes import opened
from penstock.signals.acceptance import InvalidInput, accept
from penstock.signals.commands import parse_data
from penstock.state import StateStore

log = logging.getLogger(__name__)

LINES_BYTES_MAX = 16 * 1024 * 1024
"""Bytes read from the file at a time, so that a huge file does not fill the memory."""
_READ_TO = "signals of the source read to"


class Channel(Protocol):
    @property
    def offset(self) -> Offset | None:
        """The relay log after this offset is not read yet. None: the channel does not read the relay log."""

    def poll(self) -> None:
        """Accepts the signals that have arrived."""

    def answered(self, signal: Signal) -> None:
        """Called when the status of any signal changes, whichever channel it came from."""


class FileChannel:
    """A file to which JSON objects `{"id", "type", "data"}` are appended, one per line. Answers are appended
    to `PATH.answers` in the same form. A file that was replaced or truncated is read from its beginning."""

    name = "file"
    offset = None

    def __init__(self, path: Path, state: StateStore) -> None:
        self._path = path
        self._state = state
        self._meta = f"signals of {path}"

    def poll(self) -> None:
        try:
            with open(self._path, "rb", opener=_regular) as file:
                self._read(file)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the signal file %s cannot be read: %s", self._path, error.strerror)

    def _read(self, file: Any) -> None:
        found = os.fstat(file.fileno())
        known = json.loads(self._state.meta(self._meta) or '{"file": 0, "read": 0}')
        now = {"file": found.st_ino, "read": found.st_size}
        if known == now:
            return
        start = known["read"] if known["file"] == found.st_ino and known["read"] <= found.st_size else 0
        if not found.st_size:
            self._state.set_meta(self._meta, json.dumps(now))
            return
        file.seek(start)
        data = file.read(LINES_BYTES_MAX)
        whole, newline, _ = data.rpartition(b"\n")
        if not newline:
            if len(data) < LINES_BYTES_MAX:
                return  # the line is still being written
            log.warning("%s: a line longer than %d bytes is skipped", self._path, LINES_BYTES_MAX)
            whole = data
        invalid = InvalidInput(str(self._path))
        with self._state.transaction():
            at = start
            for line in whole.split(b"\n"):
                if line.strip():
                    self._accept(line, at, invalid)
                at += len(line) + 1
            read = start + len(whole) + len(newline)
            self._state.set_meta(self._meta, json.dumps({"file": found.st_ino, "read": read}))
        invalid.end()

    def _accept(self, line: bytes, at: int, invalid: InvalidInput) -> None:
        try:
            fields = parse_data(line.decode("utf-8"))
            accept(
                self._state, fields.get("id"), fields.get("type"), fields.get("data", {}), self.name,
                limited=False,
            )  # fmt: skip
        except PenstockError as error:
            invalid.warn(f"the line at byte {at}", str(error))
        except UnicodeDecodeError as error:
            invalid.warn(f"the line at byte {at}", f"Byte {error.start} of the line is not UTF-8.")

    def answered(self, signal: Signal) -> None:
        if signal.channel != self.name:
            return
        path = self._path.with_name(f"{self._path.name}.answers")
        try:
            # A link here could redirect the write to another file of this account.
            with open(path, "a", encoding="utf-8", opener=partial(_regular, also=os.O_NOFOLLOW)) as file:
                file.write(json.dumps(signal.to_json()) + "\n")
        except OSError as error:
            log.warning("the answer to signal %s cannot be written: %s", signal.id, error)


def _regular(path: str, flags: int, *, also: int = 0) -> int:
    """Opens a regular file only. Opening a pipe would block until somebody opens its other end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | also, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


class TableChannel:
    """A table of the source with three columns: id, type, data. Each row inserted while the pipeline follows
    the log is a signal. Nothing is written to the source: `penstock signals FILE` has the answers."""

    name = "table"

    def __init__(
        self,
        table: TableId,
        state: StateStore,
        relay_log: RelayLog,
        read_table: Callable[[TableId], TableSchema | None],
        types: TypeOptions,
    ) -> None:
        self._table = table
        self._state = state
        self._log = relay_log
        self._read_table = read_table
        self._types = types
        if state.meta(_READ_TO) is None:
            state.set_meta(_READ_TO, str(int(state.position or relay_log.end)))

    @property
    def offset(self) -> Offset:
        """The relay log after this offset is not read yet."""
        return read_to(self._state) or Offset(0)

    def poll(self) -> None:
        self._log.refresh()
        start, end = self.offset, self._log.end
        if start < self._log.start:
            log.warning(
                "signals in %s from offset %d to %d are lost: that part of the relay log was deleted",
                self._table, start, self._log.start,
            )  # fmt: skip
            start = self._log.start
        if start >= end:
            return
        reach = LogRange(start, end)
        with self._state.transaction():
            if self._table in self._log.tables(reach):
                invalid = InvalidInput(str(self._table))
                try:
                    for at, fields in self._rows(reach):
                        self._accept(fields, at, invalid)
                    invalid.end()
                except TransientError:
                    raise  # they are read later
                except PenstockError as error:
                    log.warning("signals in %s up to offset %d cannot be read: %s", self._table, end, error)
            self._state.set_meta(_READ_TO, str(int(end)))

    def _rows(self, reach: LogRange) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Inserted rows, each with its sequence in the log."""
        schema = self._read_table(self._table)
        if schema is None:
            raise ConfigError(f"the signal table {self._table} does not exist")
        if len(schema.columns) != 3:
            raise ConfigError(f"the columns of the signal table {self._table} are not id, type and data")
        for split in self._log.splits(reach, self._table, bytes_aim=LINES_BYTES_MAX):
            part = opened(split)
            try:
                decoder = _core.RangeDecoder(
                    schema.to_json(), *part.place, preamble=part.preamble, types=self._types.to_json()
                )
                for batch in decoder:
                    kinds = batch.column(CHANGE_TYPE).to_pylist()
                    places = batch.column(SEQUENCE).to_pylist()
                    columns = [batch.column(n).to_pylist() for n in range(3)]
                    for kind, at, *fields in zip(kinds, places, *columns, strict=True):
                        if kind == "insert":
                            yield at, tuple(fields)
            except _core.DecodeError as error:
                raise ConfigError(str(error)) from error

    def _accept(self, fields: tuple[Any, ...], at: int, invalid: InvalidInput) -> None:
        signal_id, kind, data = fields
        try:
            if data is not None and not isinstance(data, str):
                raise ConfigError("Its data is not text.")
            accept(self._state, signal_id, kind, parse_data(data or "{}"), self.name, limited=False)
        except PenstockError as error:
            invalid.warn(f"the row at sequence {at}", str(error))

    def answered(self, signal: Signal) -> None:
        pass


def read_to(state: StateStore) -> Offset | None:
    """The offset up to which the log was read for signals; None if no signal table is configured."""
    known = state.meta(_READ_TO)
    return None if known is None else Offset(int(known))


def read_again_after(state: StateStore, offset: Offset) -> None:
    """Reads the signals behind an offset once more. Those that were executed already are not executed
    again."""
    known = read_to(state)
    if known is not None and known > offset:
        state.set_meta(_READ_TO, str(int(offset)))
