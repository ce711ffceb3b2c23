"""Checks the options by which targets have other rows than their tables: `transforms`, `history`, `views`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.config.dimensions import dimension_table
from penstock.model.pattern import matches, overlap
from penstock.model.transforms import contradiction
from penstock.model.views import view_table
from penstock.sinks import registry
from penstock.sinks.sql.address import parsed

if TYPE_CHECKING:
    from penstock.config import PipelineConfig


_STATEMENTS = ("include_query", "output_row_query")
"""Options of formats that put the text of statements into messages."""


def check(config: PipelineConfig) -> None:
    """Raises `ValueError` for options that contradict each other."""
    _check_transforms(config)
    _check_views(config)
    _check_dimensions(config)
    _check_history(config)
    if config.completeness.table is not None and not config.sink_kind.keeps_tables:
        able = registry.own_names(lambda kind: kind.keeps_tables)
        raise ValueError(f"`completeness.table` needs the sink {able}, not {config.sink.type}")


def _check_transforms(config: PipelineConfig) -> None:
    if config.transform_key and len(config.transform_key.reveal()) < 16:
        raise ValueError("`transform_key` has less than 16 characters, so it could be guessed")
    if not config.transforms:
        return
    has_key = bool(config.transform_key)
    if why := contradiction(config.transforms, config.tables.include, has_key=has_key):
        raise ValueError(f"`transforms`: {why}")
    if config.sink_kind.takes_messages and any(rule.hides for rule in config.transforms):
        options = getattr(config.sink, "options", {})
        named = [name for name in options if name.replace(".", "_") in _STATEMENTS]
        told = [name for name in named if str(options[name]).lower() == "true"]
        if told:
            raise ValueError(
                f"`transforms` cannot be used with `{told[0]}` in `sink.options`: the text of a statement "
                "has values that rules change or leave out"
            )
    if config.cascades == "apply":
        raise ValueError(
            "`transforms` cannot be used with `cascades: apply`, which needs the source's own values at "
            "the target; use cascades: park"
        )
    if config.merge_shards and any(rule.to is not None for rule in config.transforms):
        raise ValueError("`to` in `transforms` cannot be used with `merge_shards`, which names targets, too")


def _check_views(config: PipelineConfig) -> None:
    for name in config.views:
        if not config.sink_kind.keeps_history:
            able = registry.own_names(lambda kind: kind.keeps_history)
            raise ValueError(f"`views` needs the sink {able}, not {config.sink.type}")
        if not re.fullmatch(r"(\w+\.)?\w+", name):
            raise ValueError(f"`views`: {name!r} is no plain name; write name or database.name")
        if any(matches(pattern, view_table(name)) for pattern in config.tables.include):
            raise ValueError(f"`views`: {name} has the name of a captured table; name another database")


def _check_dimensions(config: PipelineConfig) -> None:
    for name, rule in config.dimensions.items():
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"`dimensions`: {name!r} is no plain name")
        if not config.views:
            raise ValueError("`dimensions` are for the queries of `views`, and there are none")
        if any(matches(pattern, dimension_table(name)) for pattern in config.tables.include):
            raise ValueError(f"`dimensions`: `tables` captures a table {dimension_table(name)}, too")
        if rule.jdbc is not None:
            try:
                parsed(rule.jdbc.url)
            except ValueError as error:
                raise ValueError(f"`dimensions`: {name}: {error}") from None


def _check_history(config: PipelineConfig) -> None:
    if not config.history:
        return
    if not config.sink_kind.keeps_history:
        able = registry.own_names(lambda kind: kind.keeps_history)
        raise ValueError(f"`history` needs the sink {able}, not {config.sink.type}")
    for pattern in config.history:
        if not any(overlap(pattern, captured) for captured in config.tables.include):
            raise ValueError(f"`history`: no table that `tables` captures can match `{pattern}`")
    if config.merge_shards:
        raise ValueError("`history` cannot be used with `merge_shards`: versions are told by the key alone")
    if any(rule.to is not None for rule in config.transforms):
        raise ValueError("`history` cannot be used with `to` in `transforms`")
    if config.cascades == "apply":
        raise ValueError(
            "`history` cannot be used with `cascades: apply`, which changes rows without events; use "
            "cascades: park"
        )
