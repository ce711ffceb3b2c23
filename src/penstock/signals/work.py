"""Executes signals. The pipeline's loop calls this between two epochs, when no plan is being executed.

A signal that takes time (a snapshot, a table that is added) is `running` until the state shows that it is
done. The loop does not wait for it, and it continues after a restart. Its answer lists the tables concerned,
with the progress or the outcome of each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, InternalError, PenstockError, TransientError
from penstock.failures.messages import one_sentence
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part
from penstock.model.pattern import named_table
from penstock.model.schema import TableId, TableSchema
from penstock.model.shards import Shards
from penstock.model.signal import VERIFY, Signal, SignalStatus
from penstock.model.table import Dropped, Removed, ResnapshotPending, TableState
from penstock.planning.named_tables import follow_patterns, leave, take_back
from penstock.printable import argument
from penstock.signals import commands
from penstock.signals.answers import progress
from penstock.signals.channels import Channel
from penstock.signals.commands import matching
from penstock.signals.settings import (
    apply_patterns,
    limits_by_signal,
    paused,
    set_limits_by_signal,
    set_paused,
    set_tables_by_signal,
    tables_by_signal,
)
from penstock.sources.catalog import Catalog
from penstock.sources.named_keys import InvalidKey, check_keys
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""Time between two checks of running signals. Each check reads their tables from the state."""
FIRST_CHECK_SECONDS = 0.1
"""Time until the first check of a signal that has just started. Short, because many signals end at once."""
RETRY = Schedule.steady(1.0)
"""Pause before a signal is tried again for which the source did not answer."""

Started = tuple[SignalStatus, dict[str, Any]]


class Signals:
    """Executes signals.

    `discover` adds tables that match the patterns and are not known yet; its argument says whether to read
    their rows. It raises `TransientError` if the source does not answer. `unpark` returns the answer to
    that signal. `limit` sets limits of snapshots. `advance_log` forces a transaction end, so that an idle
    log advances.
    """

    def __init__(
        self,
        state: StateStore,
        config: PipelineConfig,
        captured: TableFilter,
        channels: Sequence[Channel],
        *,
        discover: Callable[[bool], None],
        catalog: Catalog,
        unpark: Callable[[TableId], dict[str, Any]],
        limit: Callable[[dict[str, int]], None],
        advance_log: Callable[[], None],
    ) -> None:
        self._state = state
        self._config = config
        self._captured = captured
        self._channels = channels
        self._discover = discover
        self._catalog = catalog
        self._unpark = unpark
        self._limit = limit
        self._advance_log = advance_log
        self._next_check = 0.0
        self._backoff = Backoff(RETRY)
        self._wants_advance = self._was_full = self._follows_file = False
        self._handlers: dict[str, Callable[[Signal, Any], Started]] = {
            "execute-snapshot": self._execute,
            "stop-snapshot": self._stop,
            "pause-snapshot": self._pause,
            "resume-snapshot": self._resume,
            "add-table": self._add,
            "remove-table": self._remove,
            "park": self._park,
            "unpark": self._bring_back,
            "set-limits": self._set_limits,
            "log": self._log,
            VERIFY: self._verify,
        }

    def needed(self) -> list[Offset]:
        """Offsets after which channels still have to read the relay log."""
        return [channel.offset for channel in self._channels if channel.offset is not None]

    def work(self) -> None:
        """Reads the channels, starts signals that have arrived, and checks those that are running. The first
        call also compares the tables that are followed with the pipeline file."""
        if not self._follows_file:
            follow_patterns(self._state, self._captured, self._position)
            self._follows_file = True
        if self._channels and not self._is_full():
            for channel in self._channels:
                channel.poll()
        for signal in self._state.signals("accepted") if self._backoff.ready else ():
            self._start(signal)
            self._next_check = min(self._next_check, time.monotonic() + FIRST_CHECK_SECONDS)
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CHECK_SECONDS
            for signal in self._state.signals("running"):
                if signal.type != VERIFY:
                    self._follow_up(signal)
        if self._wants_advance:
            self._wants_advance = False
            self._advance_log()

    def _is_full(self) -> bool:
        """Whether too many signals are waiting. The channels are then not read until some have ended."""
        full = self._state.signals_full()
        if full and not self._was_full:
            log.warning("too many signals are waiting; the file and table channels are not read for now")
        self._was_full = full
        return full

    def _start(self, signal: Signal) -> None:
        try:
            command = commands.parse(signal.type, signal.data)
            with self._state.transaction():
                status, answer = self._handlers[signal.type](signal, command)
                self._state.set_signal(signal.id, status, answer)
        except TransientError as error:
            log.warning("signal %s will be retried: %s", signal.id, one_sentence(error))
            self._backoff.failed()
            return  # it is retried
        except PenstockError as error:
            # Only the answer has the reason, because it may quote the signal: a condition with values.
            log.warning("signal %s is refused; `penstock signals FILE ID` shows the reason", signal.id)
            self._state.set_signal(signal.id, "refused", error.to_json())
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            # A bug of ours: it must not end the pipeline now and at every restart.
            log.exception("signal %s failed", signal.id)
            ours = InternalError(f"{type(error).__name__}: {error}")
            self._state.set_signal(signal.id, "refused", ours.to_json())
        self._notify(signal.id)

    def _notify(self, signal_id: str) -> None:
        now = self._state.signal(signal_id)
        if now is not None:
            for channel in self._channels:
                channel.answered(now)

    # snapshots ----------------------------------------------------------------------------------------------

    def _execute(self, signal: Signal, command: commands.ExecuteSnapshot) -> Started:
        if command.target == "recreate" and not self._config.sink_kind.keeps_tables:
            raise ConfigError(
                f"The sink {self._config.sink.type} is a change log, so its target cannot be recreated.",
                hint="Without `target: recreate` the change log gets a `truncate` and then every row again.",
            )
        tables = self._followed(command.collections, gone=(Dropped,))
        shards = Shards(self._config.merge_shards)
        for table in tables if command.target == "recreate" else ():
            if (into := shards.into(table.table)) is not None:
                raise ConfigError(
                    f"{into}, the target of {table.table}, also holds other tables: it cannot be recreated.",
                    hint="Without `target: recreate` the signal touches only this table's rows.",
                )
        parts = self._parts(command, tables)
        at = self._position
        answer: dict[str, Any] = {"offset": at, "tables": {}}
        for table in tables:
            part = parts.get(table.table)
            if part is None:
                self._read_again(table, f"signal {signal.id}", recreate=command.target == "recreate")
                reads: dict[str, Any] = {"reads": "whole table"}
            else:
                number = self._state.begin_partial(signal.id, table.table, at, part)
                reads = {"reads": "part of table", "partial_snapshot": number}
            answer["tables"][str(table.table)] = reads | {"status": "waiting"}
        self._wants_advance = True
        return "running", answer

    def _followed(
        self, patterns: list[str], *, gone: tuple[type[Dropped | Removed], ...] = ()
    ) -> list[TableState]:
        """The tables that match. Tables that are `gone` in these ways match only by their full name."""
        named = {named_table(pattern) for pattern in patterns}
        known = {
            name: one
            for name, one in self._state.tables().items()
            if not one.gone or (isinstance(one.phase, gone) and name in named)
        }
        found = matching(patterns, known)
        for pattern, tables in found.items():
            if not tables:
                raise ConfigError(
                    f"The pipeline does not capture {pattern}.",
                    hint="`penstock status FILE` lists its tables.",
                )
        return [known[name] for name in sorted({table for tables in found.values() for table in tables})]

    def _parts(self, command: commands.ExecuteSnapshot, tables: list[TableState]) -> dict[TableId, Part]:
        parts: dict[TableId, Part] = {}
        known = {table.table: table for table in tables}
        for condition in command.conditions:
            found = matching([condition.collection], known)[condition.collection]
            if not found:
                raise ConfigError(
                    f"additional-conditions: {condition.collection!r} is not in data-collections."
                )
            for name in found:
                self._catalog.check_condition(known[name].schema, condition.filter)
                parts[name] = Part(condition=condition.filter)
        if command.keys or command.lower is not None or command.upper is not None:
            [table] = tables
            parts[table.table] = self._keyed_part(command, table.schema)
        for name in parts:
            self._check_partial(known[name])
        return parts

    def _keyed_part(self, command: commands.ExecuteSnapshot, schema: TableSchema) -> Part:
        types = self._config.types
        try:
            bounds = [bound for bound in (command.lower, command.upper) if bound is not None]
            check_keys(schema, [*command.keys, *bounds], types)
            lower, upper = (
                None if bound is None else tuple(
                    self._catalog.key_literal(schema.column(name), value)
                    for name, value in zip(schema.key, bound, strict=True)
                )
                for bound in (command.lower, command.upper)
            )  # fmt: skip
        except InvalidKey as error:
            raise ConfigError(f"execute-snapshot: {error}.") from None
        return Part(lower=lower, upper=upper, keys=tuple(command.keys))

    def _check_partial(self, table: TableState) -> None:
        why = ""
        if not table.schema.key:
            why = "it has no key"
        elif table.schema.foreign_keys:
            why = "its rows are changed by foreign keys (`cascades: apply`)"
        elif table.status != "live":
            why = f"it is {table.status}"
        elif pending := table.resnapshot_pending:
            why = f"a full resnapshot is pending: {pending}"
        elif table.kept_columns is not None:
            why = "its target has other columns than the source (`schema.changes: ignore`)"
        if why:
            raise ConfigError(
                f"A partial snapshot of {table.table} is not possible: {why}.",
                hint="Read the whole table, without a condition, keys or bounds.",
            )

    def _read_again(self, table: TableState, why: str, *, recreate: bool) -> None:
        self._state.end_partials(table.table, "the whole table is read")
        if table.schema.foreign_keys:  # one that does not exist any more is not waited for
            present = self._catalog.read_table(table.table)
            keys = present.foreign_keys if present is not None else ()
            table = replace(table, schema=replace(table.schema, foreign_keys=keys))
        # Also of a dropped table: it may exist again.
        table = replace(table, phase=ResnapshotPending(why, table.parked))
        if recreate and table.last_epoch > 0:  # else there is no target to drop
            table = replace(table, target_reset="recreate")
        self._state.put_table(table)

    def _stop(self, signal: Signal, command: commands.SnapshotSelection) -> Started:
        stopped: dict[str, Any] = {}
        for table in self._some(command.collections):
            for one in self._state.partials():
                if one.table == table.table:
                    self._state.end_partial(one.number, "stopped", f"by signal {signal.id}")
                    stopped[str(table.table)] = "partial snapshot"
            if table.reading or (table.resnapshot_pending and table.parked is None):
                self._state.park(
                    table.table,
                    offset=self._position,
                    reason=f"Signal {signal.id} stopped its snapshot before all rows were read.",
                    hint=f"Run `penstock resnapshot FILE {argument(table.table)}`, or send the signal "
                    "execute-snapshot.",
                )
                stopped[str(table.table)] = "whole table; the table is now parked"
        return "done", {"stopped": stopped}

    def _some(self, patterns: list[str] | None) -> list[TableState]:
        if patterns is None:
            return [table for table in self._state.tables().values() if not table.gone]
        return self._followed(patterns)

    def _pause(self, signal: Signal, command: commands.SnapshotSelection) -> Started:
        now = paused(self._state)
        named = (
            ["*"] if command.collections is None else [str(t.table) for t in self._some(command.collections)]
        )
        set_paused(self._state, now | set(named))
        return "done", {"paused": sorted(now | set(named))}

    def _resume(self, signal: Signal, command: commands.SnapshotSelection) -> Started:
        now = paused(self._state)
        if command.collections is None:
            left: set[str] = set()
        elif "*" in now:
            raise ConfigError("All snapshots are paused. Send resume-snapshot without tables to resume them.")
        else:
            left = now - {str(table.table) for table in self._some(command.collections)}
        set_paused(self._state, left)
        return "done", {"paused": sorted(left)}

    # tables -------------------------------------------------------------------------------------------------

    def _add(self, signal: Signal, command: commands.AddTable) -> Started:
        by_signal = tables_by_signal(self._state)
        include = [
            *by_signal["include"],
            *(name for name in command.tables if name not in by_signal["include"]),
        ]
        back = {
            str(table)
            for tables in matching(command.tables, map(TableId.parse, by_signal["removed"])).values()
            for table in tables
        }
        by_signal = {
            "include": include,
            "removed": [name for name in by_signal["removed"] if name not in back],
        }
        set_tables_by_signal(self._state, by_signal)
        apply_patterns(self._captured, self._config.tables, self._state)
        take_back(self._state, self._captured, f"signal {signal.id}")
        self._wants_advance = True
        return "running", {"offset": self._position, "found": False, "tables": {}}

    def _remove(self, signal: Signal, command: commands.Tables) -> Started:
        tables = self._followed(command.tables)
        by_signal = tables_by_signal(self._state)
        by_signal["removed"] = sorted({*by_signal["removed"], *(str(table.table) for table in tables)})
        set_tables_by_signal(self._state, by_signal)
        apply_patterns(self._captured, self._config.tables, self._state)
        for table in tables:
            reason = f"Removed by signal {signal.id}."
            leave(self._state, table, self._position, reason)
        return "done", {"removed": [str(table.table) for table in tables]}

    def _park(self, signal: Signal, command: commands.Tables) -> Started:
        tables = self._followed(command.tables)
        for table in tables:
            # All plans are applied, so a table whose rows are complete may continue from here.
            continues = table.streaming and table.complete
            self._state.park(
                table.table,
                offset=self._position,
                reason=command.reason or f"Parked by signal {signal.id}.",
                hint=f"Run `penstock unpark FILE {argument(table.table)}`, or send the signal unpark.",
                resumes=self._position if continues else None,
            )
        return "done", {"parked": [str(table.table) for table in tables]}

    def _bring_back(self, signal: Signal, command: commands.Tables) -> Started:
        tables = self._followed(command.tables, gone=(Dropped, Removed))
        answers = {str(table.table): self._unpark(table.table) for table in tables}
        self._wants_advance = True
        return "done", {"tables": answers}

    # other signals ------------------------------------------------------------------------------------------

    def _set_limits(self, signal: Signal, command: commands.SetLimits) -> Started:
        limits = limits_by_signal(self._state)
        limits |= {name: value for name, value in command.model_dump().items() if value is not None}
        set_limits_by_signal(self._state, limits)
        self._limit(limits)
        return "done", {"limits": limits}

    def _log(self, signal: Signal, command: commands.Log) -> Started:
        message = command.message.replace("{}", str(int(self._position)))
        log.warning("signal %s: %s", signal.id, message)
        return "done", {"message": message, "offset": self._position}

    def _verify(self, signal: Signal, command: commands.Verify) -> Started:
        if signal.channel != VERIFY:
            raise ConfigError("Only the command `penstock verify` sends this signal.")
        return "running", {"held": True} if command.position is None else {}

    @property
    def _position(self) -> Offset:
        return self._state.position or Offset(0)

    # what takes time ----------------------------------------------------------------------------------------

    def _follow_up(self, signal: Signal) -> None:
        answer = dict(signal.answer)
        if signal.type == "add-table" and not answer["found"]:
            command = commands.parse(signal.type, signal.data)
            try:
                self._discover(command.snapshot)
            except TransientError as error:
                log.info("signal %s will be retried: %s", signal.id, error)
                return
            except PenstockError as error:
                self._state.set_signal(signal.id, "failed", error.to_json())
                self._notify(signal.id)
                return
            found = matching(command.tables, self._state.tables()).values()
            names = sorted({str(table) for tables in found for table in tables})
            answer |= {"found": True, "tables": {name: {"reads": "whole table"} for name in names}}
        answer["tables"] = {
            name: progress(self._state, signal, TableId.parse(name), item)
            for name, item in answer["tables"].items()
        }
        ended = [item["status"] for item in answer["tables"].values()]
        status: SignalStatus = "running"
        if not ended and signal.type == "add-table":
            status = "done"
            answer["note"] = "No such table exists yet. It will be followed once it is created."
        elif all(one == "done" for one in ended):
            status = "done"
        elif all(one in ("done", "stopped") for one in ended):
            status = "failed"
        if status != signal.status or answer != signal.answer:
            self._state.set_signal(signal.id, status, answer)
            self._notify(signal.id)
