"""Tables in a relay log that somebody else writes, as a stream."""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.datasource.definitions import Definitions, Known, Stretch, refuse_unseen, what_changed
from penstock.datasource.log import (
    of_many,
    open_log,
    partitions_of,
    present_schema,
    same_columns,
    stretches_of_many,
)
from penstock.datasource.options import CdcOptions, needs_state
from penstock.datasource.partitions import Partition
from penstock.datasource.places import offset_of
from penstock.datasource.turn import Turn
from penstock.disk import directory
from penstock.disk.replace import replace_file
from penstock.errors import ConfigError, TableError
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.archive_restore import identity_of, survives
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.reader import RelayLog

FILE = "stream.json"


def definition(options: CdcOptions) -> TableSchema:
    """The definition that a query begins with, or goes on with."""
    if options.state is not None and (known := _known(options.state)) is not None:
        return TableSchema.from_json(known["schema"])
    return present_schema(options)


def _known(state: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((state / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(
            f"{state / FILE} is damaged.",
            hint="Begin anew, with a new folder in `state` and a new checkpoint.",
        ) from error
    return found


def opened(options: CdcOptions) -> RelayStream:
    return RelayStreamOfMany(options) if options.is_envelope else RelayStream(options)


class RelayStream:
    """The stream's state, which is in a file. `schema`: a definition with the query's columns, true at offset
    `since`. Behind that, statements may change what columns do not show, such as the labels of an ENUM.
    `given`: Spark has asked for the rows up to there. `done`: it has them for good. `last`: the part of the
    log at whose end the query's columns end, once this end is in the log."""

    def __init__(self, options: CdcOptions) -> None:
        self._options = options
        self._folder = needs_state(options)
        directory.make(self._folder, "state")
        self._closing = contextlib.ExitStack()
        self._closing.enter_context(directory.held(self._folder))
        try:
            self._open(options)
        except BaseException:
            self.close()
            raise

    def _open(self, options: CdcOptions) -> None:
        self._log: RelayLog = open_log(options)
        known = _known(self._folder)
        if known is None:
            start = offset_of(self._log, options.start, "from")
            known = {
                "log": identity_of(self._log.facts), "consumer": str(uuid.uuid4()),
                "start": int(start), "since": int(start), "given": int(start), "done": int(start),
                **self._first_known(),
            }  # fmt: skip
        self._known = known
        self._check_log()
        self._turn = Turn()
        self._last: Stretch | None = None
        if (last := known.get("last")) is not None:
            self._last = self._first_end(LogRange(*map(Offset, last)))
        self._save()
        self._consumer = None
        if self._log.place.folder is not None:
            name, needs = f"mysql_cdc-{known['consumer'][:8]}", Offset(known["done"])
            self._consumer = Consumer(self._log.path, name, needs=needs, id=known["consumer"])
            self._closing.callback(self._consumer.close)

    def _check_log(self) -> None:
        same = survives(self._log.facts, self._known["log"])
        if same is None:
            raise ConfigError(
                f"{self._folder} belongs to a stream of another relay log.",
                hint="Give the stream a folder of its own in `state`.",
            )
        if self._known["given"] > same:
            raise ConfigError(
                f"The relay log behind offset {same} was lost with a disk, and has other offsets now. This "
                f"query has read up to {self._known['given']}.",
                hint="Begin anew, with a new folder in `state` and a new checkpoint.",
            )
        self._known["log"] = identity_of(self._log.facts)

    @property
    def pipeline(self) -> str:
        return str(self._known["consumer"])

    @property
    def _schema(self) -> TableSchema:
        return TableSchema.from_json(self._known["schema"])

    def first(self) -> int:
        if self._known["done"] != self._known["start"]:
            raise ConfigError(
                f"A query has read {self._folder} up to offset {self._known['done']}, and this one has "
                "another checkpoint.",
                hint="Give it the checkpoint of that query, or a new folder in `state` to begin anew.",
            )
        return int(self._known["start"])

    def plan_until_now(self, *, is_all: bool) -> int:
        """Plans all that is in the log. Without `is_all`, the query may have any trigger:
        `max_bytes_per_trigger` is respected if it has read something before."""
        is_all = is_all or self._known["given"] == self._known["start"]
        return self._plan(None if is_all else self._options.max_bytes_per_trigger)

    def plan(self) -> int:
        """The offset up to which there are changes with the present definition."""
        return self._plan(self._options.max_bytes_per_trigger)

    def step(self, after: int, last: int) -> int:
        """The end of a batch that begins at one offset and does not go beyond another."""
        most = self._options.max_bytes_per_trigger
        return last if most is None else min(last, int(self._log.cut(Offset(after), most)))

    def has(self, offset: int) -> None:
        """Called when Spark has everything up to an offset. Raises `TableError` if the query's definition
        ends there."""
        if self._last is not None and offset >= int(self._last.range.end):
            self._report(self._last)

    def _plan(self, most: int | None) -> int:
        self._log.refresh()
        start = Offset(max(self._known["given"], self._known["since"]))
        end = self._log.end if most is None else min(self._log.end, self._log.cut(start, most))
        if self._last is None:
            self._last = self._first_end(LogRange(start, Offset(max(start, end))))
            if self._last is not None:
                self._known["last"] = [int(self._last.range.start), int(self._last.range.end)]
                self._save()
        if self._last is None:
            return int(max(start, end))
        end = self._last.range.end
        if self._turn.is_done(int(end)):
            self._report(self._last)
        return int(end)

    def _first_known(self) -> dict[str, Any]:
        return {"schema": json.loads(present_schema(self._options).to_json())}

    def _first_end(self, reach: LogRange) -> Stretch | None:
        """The first stretch at whose end the query cannot go on."""
        found = self._stretches(reach)
        return next((one for one in found if one.ends_with is not None and self._ends(one)), None)

    def _stretches(self, reach: LogRange) -> list[Stretch]:
        known = Known(Offset(self._known["since"]), self._schema)
        return list(Definitions(self._log, self._options.table_id, self._options.types, known).along(reach))

    def _ends(self, stretch: Stretch) -> bool:
        """Whether the query cannot go on behind a stretch with its definition."""
        after = stretch.after
        return bool(stretch.unseen) or after is None or not same_columns(after, self._schema, self._options)

    def _report(self, stretch: Stretch) -> None:
        refuse_unseen(self._options.table_id, stretch)
        if stretch.after is None:
            raise TableError(
                f"{what_changed(stretch)} removed {self._options.table}.",
                hint="The query has every change before that.",
                table=self._options.table,
            )
        schema = json.loads(stretch.after.to_json())
        self._known |= {"since": int(stretch.range.end), "schema": schema, "last": None}
        self._save()
        raise TableError(
            f"{what_changed(stretch)} changed the columns of {self._options.table}. The query has every "
            "change before that.",
            hint="Load and start the query again, with the same checkpoint: it goes on with the new columns.",
            table=self._options.table,
            offset=int(stretch.range.end),
        )

    def partitions(self, after: int, last: int) -> list[Partition]:
        self._turn.given(last)
        self._known["given"] = max(self._known["given"], last)
        self._save()
        if after < self._log.start:
            raise ConfigError(
                f"The relay log {self._log.place} begins at offset {self._log.start}, and this query goes on "
                f"at {after}.",
                hint="Begin anew, with a new folder in `state` and a new checkpoint.",
            )
        return self._parts(LogRange(Offset(after), Offset(last)))

    def _parts(self, reach: LogRange) -> list[Partition]:
        return [
            partition
            for stretch in self._stretches(reach)
            for partition in partitions_of(self._log, self._options, stretch, stretch.schema or self._schema)
        ]

    def done(self, offset: int) -> None:
        self._carry(Offset(offset))
        self._known["done"] = offset
        self._save()
        if self._consumer is not None:
            last = self._known.get("last") or [offset]
            self._consumer.needs(Offset(min(offset, last[0])))

    def _carry(self, offset: Offset) -> None:
        """Stores the definition at this offset, so that the log before it may be deleted."""
        ends = self._last is not None and offset >= self._last.range.end  # `_report` has the one behind that
        if ends or offset <= self._known["since"]:
            return
        for stretch in self._stretches(LogRange(Offset(self._known["since"]), offset)):
            schema = stretch.schema if stretch.ends_with is None else stretch.after
            if schema is not None:
                self._known |= {"since": int(stretch.range.end), "schema": json.loads(schema.to_json())}

    def _save(self) -> None:
        replace_file(self._folder / FILE, json.dumps(self._known).encode(), durable=True)

    def close(self) -> None:
        self._closing.close()


class RelayStreamOfMany(RelayStream):
    """A stream over many tables, which continues where columns change. It ends only where rows changed that
    are not in the log, and continues behind that when it is started again."""

    _table: TableId | None = None
    """The table of the stretch `_last`."""

    def _first_known(self) -> dict[str, Any]:
        return {}

    def _first_end(self, reach: LogRange) -> Stretch | None:
        ends = [
            (table, one) for table, one in stretches_of_many(self._log, self._options, reach) if one.unseen
        ]
        if not ends:
            return None
        self._table, found = min(ends, key=lambda end: end[1].range.end)
        return found

    def _report(self, stretch: Stretch) -> None:
        self._known |= {"since": int(stretch.range.end), "last": None}
        self._save()
        assert self._table is not None, "the stretch has a table"
        raise TableError(
            f"{what_changed(stretch)} changed rows of {self._table} that are not in the log: "
            f"{stretch.unseen}.",
            hint="The query has every change before that. Start it again, with the same checkpoint: it goes "
            "on behind the statement, without those changes.",
            table=str(self._table),
            offset=int(stretch.range.end),
        )

    def _carry(self, offset: Offset) -> None:
        """Does nothing: rows of many tables have a form that no change of a definition alters."""

    def _parts(self, reach: LogRange) -> list[Partition]:
        stretches = stretches_of_many(self._log, self._options, reach)
        # The end of a part was reported, or will be once Spark has the part.
        return of_many(self._log, self._options, ((t, replace(one, unseen="")) for t, one in stretches))
