"""`penstock adopt FILE` and `penstock reset FILE`: a new state for targets that exist, because the state is
lost, damaged or unwanted."""

from __future__ import annotations

import sys
import uuid as uuids
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from penstock import config as configuration
from penstock.commands.terminal import say, say_json
from penstock.commands.working import Working
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.printable import size_text
from penstock.relaylog import consumers
from penstock.runtime.fresh_state import FreshState, OldState, begin, prepared, stopped
from penstock.runtime.target_owners import Owned, owners, the_owner
from penstock.sources import open_source

NEXT = "The next `penstock run` reads all tables again. The targets keep their rows until then."
TABLES_SHOWN_MAX = 50
"""Tables that are listed before the question, so that it stays on the screen. `--json` has all."""


def adopt(file: Path, *, pipeline: str | None, yes: bool, as_json: bool) -> None:
    """Writes a new state for targets whose pipeline has lost its own; of all sinks if a file has several.
    `pipeline`: the uuid of their owner, needed only if they have several. `yes`: does not ask; with `as_json`
    and without it, only tells what it would do."""
    configs, locks = _all(file)
    found, chosen, kept = list[Owned](), list[_Chosen](), []
    with stopped(locks):
        for config in configs:
            old = OldState.of(config)
            found += (own := _owners(config))
            uuid = the_owner(own, pipeline)
            if uuid is None and config.sink_kind.takes_messages:
                uuid = _registered(config) or str(uuids.uuid4())
            if uuid is not None and old.uuid == uuid:
                kept.append((config, old))
            elif uuid is not None:
                chosen.append(_Chosen(config, uuid, old))
        if not chosen and not kept:
            raise ConfigError(
                "No target of a captured table belongs to a pipeline, so there is nothing to adopt.",
                hint="Start with `penstock run FILE`.",
            )
        if not chosen and not all(old.is_fresh for _, old in kept):
            config, old = kept[0]
            raise ConfigError(
                f"The state {config.state} is that of the pipeline {old.uuid}, to which the targets belong.",
                hint="Start it: `penstock run FILE`. To read all tables again, use `penstock reset FILE`.",
            )
        what = "Their pipeline must not run any more, on any machine: it and this one have one identity."
        _begin(chosen, found, what, yes=yes, as_json=as_json)


def reset(file: Path, *, yes: bool, as_json: bool) -> None:
    """Replaces the state and the relay log of a pipeline, or of all sinks of a file, by empty ones that have
    the same identity."""
    configs, locks = _all(file)
    found, chosen = list[Owned](), list[_Chosen]()
    with stopped(locks):
        for config in configs:
            old = OldState.of(config)
            uuid = old.uuid
            if old.damage:
                found += (own := _owners(config))
                uuid = the_owner(own, None) or _registered(config) or str(uuids.uuid4())
            if uuid is not None:  # otherwise a sink that has never run
                _refuse_unread(config)
                chosen.append(_Chosen(config, uuid, old))
        if not chosen:
            raise ConfigError(
                f"There is no state in {configs[0].state}, so there is nothing to reset.",
                hint="If it is lost, `penstock adopt FILE` takes over the targets. Otherwise: "
                "`penstock run FILE`.",
            )
        what = "What is not at the targets yet is read again from the source, as it is then."
        _begin(chosen, found, what, yes=yes, as_json=as_json)


@dataclass(frozen=True)
class _Chosen:
    """A pipeline that gets a new state with this uuid."""

    config: PipelineConfig
    uuid: str
    old: OldState


def _all(file: Path) -> tuple[list[PipelineConfig], list[PipelineConfig]]:
    """The pipelines of a file, and those whose states are to be locked."""
    config, members = configuration.load_several(file)
    return list(members.values()) or [config], [config, *members.values()]


def _registered(config: PipelineConfig) -> str | None:
    """The uuid under which a pipeline of this name reads the relay log, if that is left."""
    found = consumers.registered(config.relay_log_path)
    return next((one.id for one in found if one.name == config.name and one.kind == "pipeline"), None)


def _owners(config: PipelineConfig) -> list[Owned]:
    _refuse_unread(config)
    with Working("asking the targets who owns them"):
        return owners(config)


def _refuse_unread(config: PipelineConfig) -> None:
    with closing(open_source(config)) as source:
        if not source.catalog.reads_tables:
            raise ConfigError(
                f"The source `{config.source.type}` does not let tables be read again.",
                hint="Use another `state`, `relay_log.path` and `sink.namespace`.",
            )


def _begin(chosen: Sequence[_Chosen], found: Sequence[Owned], what: str, *, yes: bool, as_json: bool) -> None:
    """Shows what will be done, asks, and does it."""
    together = {uuid for one in chosen for uuid in (one.uuid, one.old.uuid) if uuid is not None}
    plans = [prepared(one.config, one.uuid, one.old, together=together) for one in chosen]
    documents = [_document(one) for one in plans]
    if not as_json:
        _show(plans, found)
        say(what if plans else "Nothing is left to do.")
    if plans and not yes and not as_json:
        ask("Go on?")
    done = yes or not as_json
    for plan, one in zip(plans, chosen, strict=True):
        if done:
            begin(plan, one.old.uuid)
    if as_json:
        say_json({"done": done, "pipelines": documents, "tables": [one.to_json() for one in found]})
    else:
        say(NEXT)


def ask(question: str) -> None:
    """Returns if the operator agrees. Raises `ConfigError` if nobody can be asked."""
    if not sys.stdin.isatty():
        raise ConfigError(
            "This command asks first, and there is no terminal.", hint="Repeat it with `--yes`."
        )
    if not typer.confirm(question):
        raise ConfigError("Nothing was changed.")


def ensure_agreed(warning: str, question: str, *, yes: bool, as_json: bool) -> None:
    """As `ask`, after a warning, unless `yes` says it. With `as_json` it never asks, and needs `yes`."""
    if yes:
        return
    if as_json:
        raise ConfigError("Nothing was changed.", hint="With `--json`, say `--yes`, too.")
    say(warning)
    ask(question)


def _show(plans: Sequence[FreshState], found: Sequence[Owned]) -> None:
    for one in found[:TABLES_SHOWN_MAX]:
        owner = f"pipeline {one.owner}" if one.owner else one.note
        say(f"{one.table}  {one.place}  {owner}" if one.place else f"{one.table}  {owner}")
    if len(found) > TABLES_SHOWN_MAX:
        say(f"… and {len(found) - TABLES_SHOWN_MAX:,} more tables (--json lists all)")
    for plan in plans:
        say(f"Pipeline {plan.config.name}, identity {plan.uuid}. Will be deleted:")
        for path, size in plan.removes():
            say(f"  {path}  {size_text(size)}")
        if plan.log_readers:
            readers = ", ".join(plan.log_readers)
            say(f"  The relay log {plan.config.relay_log_path} stays, because others read it: {readers}.")


def _document(fresh: FreshState) -> dict[str, Any]:
    return {
        "name": fresh.config.name,
        "pipeline": fresh.uuid,
        "deletes": [{"path": str(path), "bytes": size} for path, size in fresh.removes()],
        "log_readers": list(fresh.log_readers),
    }
