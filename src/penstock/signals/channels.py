"""Ways on which signals come from outside. Each remembers in the state store how far it has read, in the
transaction that accepts what it read; so none is missed or accepted twice, whenever the pipeline is killed.

What is no signal (no JSON, no id, a row with other columns) is told in the log and passed over: nobody could
read an answer to it. The log says where it stands and what is wrong with it, never what it holds.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from penstock import _core
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.model.change import CHANGE_TYPE, SEQUENCE
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.model.signal import Signal
from penstock.relaylog.reader import RelayLog
from penstock.signals.commands import DATA_BYTES_MAX, DATA_DEPTH_MAX, check_id, parse, parse_data
from penstock.state import StateStore

log = logging.getLogger(__name__)

LINES_BYTES_MAX = 16 * 1024 * 1024
"""Of a file, per look."""
TOLD_MAX = 20
"""Of what is no signal, in the log, per look; the others are counted."""
REST_PACKAGES = ("fastapi", "starlette", "uvicorn")
"""Of the extra `rest`. A plain install has no web server."""
_READ_TO = "signals of the source read to"


class Channel(Protocol):
    @property
    def offset(self) -> Offset | None:
        """What of the relay log lies behind is still to be read; None: it reads none."""

    def poll(self) -> None:
        """Accepts what has come."""

    def answered(self, signal: Signal) -> None:
        """A signal's status has changed. Called for signals of any channel."""


class FileChannel:
    """A file to which JSON objects `{"id", "type", "data"}` are appended, one a line. Answers are appended to
    `PATH.answers` in the same form. A file that is replaced or cut off is read from its beginning."""

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
        here = {"file": found.st_ino, "read": found.st_size}
        if known == here:
            return
        start = known["read"] if known["file"] == found.st_ino and known["read"] <= found.st_size else 0
        if not found.st_size:
            self._state.set_meta(self._meta, json.dumps(here))
            return
        file.seek(start)
        data = file.read(LINES_BYTES_MAX)
        whole, newline, _ = data.rpartition(b"\n")
        if not newline:
            if len(data) < LINES_BYTES_MAX:
                return  # the line is still being written
            log.warning("%s: a line longer than %d bytes is passed over", self._path, LINES_BYTES_MAX)
            whole = data
        wrong = _Wrong(str(self._path))
        with self._state.transaction():
            at = start
            for line in whole.split(b"\n"):
                if line.strip():
                    self._accept(line, at, wrong)
                at += len(line) + 1
            read = start + len(whole) + len(newline)
            self._state.set_meta(self._meta, json.dumps({"file": found.st_ino, "read": read}))
        wrong.end()

    def _accept(self, line: bytes, at: int, wrong: _Wrong) -> None:
        try:
            fields = parse_data(line.decode("utf-8"))
            accept(
                self._state, fields.get("id"), fields.get("type"), fields.get("data", {}), self.name,
                limited=False,
            )  # fmt: skip
        except PenstockError as error:
            wrong.tell(f"the line at byte {at}", str(error))
        except UnicodeDecodeError as error:
            wrong.tell(f"the line at byte {at}", f"It is not UTF-8, from byte {error.start} of the line on.")

    def answered(self, signal: Signal) -> None:
        if signal.channel != self.name:
            return
        path = self._path.with_name(f"{self._path.name}.answers")
        try:
            # Whoever may make files there must not choose another file of ours by a link.
            with open(path, "a", encoding="utf-8", opener=partial(_regular, also=os.O_NOFOLLOW)) as file:
                file.write(json.dumps(signal.to_json()) + "\n")
        except OSError as error:
            log.warning("the answer to signal %s cannot be written: %s", signal.id, error)


def _regular(path: str, flags: int, *, also: int = 0) -> int:
    """Opens without waiting, as a pipe would make us do for somebody at its other end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | also, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return descriptor


class TableChannel:
    """A table of the source with three columns: id, type, data. Each inserted row is a signal, taken from the
    relay log at its place; rows that were there before the pipeline began are not. Nothing is written to the
    source: `penstock signals` has the answers."""

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
        """What lies behind is still to be read."""
        return read_to(self._state) or Offset(0)

    def poll(self) -> None:
        self._log.refresh()
        start, end = self.offset, self._log.end
        if start < self._log.start:
            log.warning(
                "signals in %s from offset %d to %d are passed over: that part of the log is gone",
                self._table, start, self._log.start,
            )  # fmt: skip
            start = self._log.start
        if start >= end:
            return
        reach = LogRange(start, end)
        with self._state.transaction():
            if self._table in self._log.tables(reach):
                wrong = _Wrong(str(self._table))
                try:
                    for at, fields in self._rows(reach):
                        self._accept(fields, at, wrong)
                    wrong.end()
                except TransientError:
                    raise  # they are read later
                except PenstockError as error:
                    log.warning("signals in %s up to offset %d cannot be read: %s", self._table, end, error)
            self._state.set_meta(_READ_TO, str(int(end)))

    def _rows(self, reach: LogRange) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Inserted rows, each with its place in the log."""
        schema = self._read_table(self._table)
        if schema is None:
            raise ConfigError(f"the table {self._table} does not exist")
        if len(schema.columns) != 3:
            raise ConfigError(
                f"{self._table} has {len(schema.columns)} columns, a signal has id, type and data"
            )
        for split in self._log.splits(reach, self._table, bytes_aim=LINES_BYTES_MAX):
            try:
                decoder = _core.RangeDecoder(
                    schema.to_json(), split.path, split.base, split.start, split.end,
                    preamble=split.preamble, types=self._types.to_json(),
                )  # fmt: skip
                for batch in decoder:
                    kinds = batch.column(CHANGE_TYPE).to_pylist()
                    places = batch.column(SEQUENCE).to_pylist()
                    columns = [batch.column(n).to_pylist() for n in range(3)]
                    for kind, at, *fields in zip(kinds, places, *columns, strict=True):
                        if kind == "insert":
                            yield at, tuple(fields)
            except _core.DecodeError as error:
                raise ConfigError(str(error)) from error

    def _accept(self, fields: tuple[Any, ...], at: int, wrong: _Wrong) -> None:
        signal_id, kind, data = fields
        try:
            if data is not None and not isinstance(data, str):
                raise ConfigError("its data is not text")
            accept(self._state, signal_id, kind, parse_data(data or "{}"), self.name, limited=False)
        except PenstockError as error:
            wrong.tell(f"the row at sequence {at}", str(error))

    def answered(self, signal: Signal) -> None:
        pass


def read_to(state: StateStore) -> Offset | None:
    """Up to where the source's log was read for signals; None: it was not."""
    known = state.meta(_READ_TO)
    return None if known is None else Offset(int(known))


def open_channels(
    config: PipelineConfig,
    state: StateStore,
    relay_log: RelayLog,
    read_table: Callable[[TableId], TableSchema | None],
) -> list[Channel]:
    channels: list[Channel] = []
    if config.signals.file is not None:
        channels.append(FileChannel(config.signals.file, state))
    if config.signals.table is not None:
        table = TableId.parse(config.signals.table)
        channels.append(TableChannel(table, state, relay_log, read_table, config.types))
    return channels


def rest_server(config: PipelineConfig, state: StateStore) -> AbstractContextManager[str | None]:
    """Takes signals over HTTP while the block lasts, if the pipeline file asks for it; the address. Raises
    `ConfigError` where the packages of the extra `rest` are missing."""
    if config.signals.rest is None:
        return nullcontext()
    try:
        from penstock.signals.rest import serving  # FastAPI is slow to import
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in REST_PACKAGES:
            raise
        raise ConfigError(
            f"`signals.rest` takes signals over HTTP, which needs the package {error.name}.",
            hint="pip install 'penstock[rest]'",
        ) from None
    return serving(config.signals.rest, state)


def send(config: PipelineConfig, kind: str, data: dict[str, Any], signal_id: str | None = None) -> str:
    """From any process. The id. Raises `ConfigError`."""
    parse(kind, data)
    state = StateStore(config.state)
    state.limit_signals(config.signals)
    try:
        signal_id = signal_id or str(uuid.uuid4())
        accept(state, signal_id, kind, data, "python")
    finally:
        state.close()
    return signal_id


def accept(
    state: StateStore, signal_id: Any, kind: Any, data: Any, channel: str, *, limited: bool = True
) -> bool:
    """False: the id is known already. Raises `ConfigError` for what is no signal at all; what its type and
    data say is judged when it is done. `limited`: raises `SignalsWait` while too many wait."""
    check(signal_id, kind, data)
    return state.send(signal_id, kind, data, channel, limited=limited)


class _Wrong:
    """Tells of what is no signal, but only so often: whoever writes there could fill the log."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0

    def tell(self, place: str, why: str) -> None:
        self._count += 1
        if self._count <= TOLD_MAX:
            log.warning("%s: %s is no signal: %s", self._where, place, why)

    def end(self) -> None:
        if self._count > TOLD_MAX:
            log.warning("%s: %d more are no signals", self._where, self._count - TOLD_MAX)


def check(signal_id: Any, kind: Any, data: Any) -> None:
    """Raises `ConfigError` for what is no signal at all. What passes can be kept and read again anywhere: it
    is JSON for any reader, in UTF-8, and not nested so deeply that only some stack could hold it."""
    check_id(signal_id)
    if not isinstance(kind, str) or not 0 < len(kind) <= 100:
        raise ConfigError("A signal's type is a text.")
    if not isinstance(data, dict):
        raise ConfigError("A signal's data is a JSON object.")
    if not _is_shallow(data):
        raise ConfigError(f"A signal's data is nested more than {DATA_DEPTH_MAX} deep.")
    try:
        f"{signal_id}{kind}".encode()
        size = len(json.dumps(data, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError):
        raise ConfigError(
            "A signal holds what JSON in UTF-8 cannot, such as NaN or half a character."
        ) from None
    if size > DATA_BYTES_MAX:
        raise ConfigError(f"A signal's data is longer than {DATA_BYTES_MAX} bytes.")


def _is_shallow(data: Any) -> bool:
    level = [data]
    for _ in range(DATA_DEPTH_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list | tuple)
        ]
        if not level:
            return True
    return False
