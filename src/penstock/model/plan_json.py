"""Plans as JSON text, for the state store.

Definitions of tables may be long, and many plans use the same ones. So a plan names a definition by a number,
and the state store has the definition as long as a plan uses it. Texts of format 1, which contain the
definitions, can be read, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.plan import (
    AdoptTarget,
    ApplyCascades,
    ApplyEvents,
    ColumnOrigin,
    CreateTarget,
    DefinitionChange,
    DeleteOlder,
    DropTarget,
    EpochPlan,
    Evolve,
    KeptColumns,
    Move,
    Park,
    PlaceChunks,
    RecreateTarget,
    Scan,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema

FORMAT = 2

NumberOf = Callable[[TableSchema], int]
SchemaOf = Callable[[int], TableSchema]


def plan_to_text(plan: EpochPlan, number_of: NumberOf) -> str:
    document = {
        "format": FORMAT,
        "epoch": plan.epoch,
        "start": plan.range.start,
        "end": plan.range.end,
        "tables": [
            {
                "schema": number_of(table.schema),
                "steps": [_step_json(step, number_of) for step in table.steps],
                "start": table.start,
                "kept": _kept_json(table.kept_columns, number_of),
            }
            for table in plan.tables
        ],
        "moves": [[str(move.source), str(move.target), move.identity] for move in plan.moves],
        "keeps": [number_of(schema) for schema in plan.catch_up_later],
        "definitions": [
            [None if one is None else number_of(one) for one in (change.before, change.after)]
            for change in plan.definitions
        ],
        "complete_until_us": plan.complete_until_us,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def plan_from_text(text: str, schema_of: SchemaOf) -> EpochPlan:
    def schema(named: int | dict[str, Any]) -> TableSchema:
        return schema_of(named) if isinstance(named, int) else TableSchema.from_json(named)

    document = json.loads(text)
    return EpochPlan(
        epoch=document["epoch"],
        range=LogRange(Offset(document["start"]), Offset(document["end"])),
        tables=tuple(
            TablePlan(
                schema(plan["schema"]),
                tuple(_step(step, schema) for step in plan["steps"]),
                Offset(plan["start"]),
                _kept(plan["kept"], schema),
            )
            for plan in document["tables"]
        ),
        moves=tuple(
            Move(TableId.parse(source), TableId.parse(target), identity)
            for source, target, identity in document.get("moves", ())
        ),
        catch_up_later=tuple(schema(one) for one in document.get("keeps", ())),
        definitions=tuple(
            DefinitionChange(*(None if one is None else schema(one) for one in change))
            for change in document.get("definitions", ())
        ),
        complete_until_us=document.get("complete_until_us"),
    )


def _kept_json(kept: KeptColumns | None, number_of: NumberOf) -> dict[str, Any] | None:
    return None if kept is None else {"schema": number_of(kept.schema), "sources": kept.sources}


def _kept(fields: dict[str, Any] | None, schema: Callable[[Any], TableSchema]) -> KeptColumns | None:
    return KeptColumns(schema(fields["schema"]), tuple(fields["sources"])) if fields else None


def _step_json(step: Step, number_of: NumberOf) -> dict[str, Any]:
    if isinstance(step, PlaceChunks):
        return {
            "kind": step.kind,
            "mode": step.mode,
            "chunks": [chunk.to_json() for chunk in step.chunks],
            "scans": [{"splits": _splits_json(scan.splits), "exclude": scan.seen} for scan in step.scans],
            "window": step.window,
            "newer": step.newer,
        }
    if isinstance(step, ApplyEvents):
        return {
            "splits": _splits_json(step.splits),
            "mode": step.mode,
            "bytes": step.bytes,
            "newer": step.newer,
            "kind": step.kind,
        }
    if isinstance(step, Evolve):
        return {
            "kind": step.kind,
            "schema": number_of(step.schema),
            "origins": [asdict(origin) for origin in step.origins],
            "refills": step.refills,
            "kept": _kept_json(step.kept_columns, number_of),
        }
    return asdict(step)


def _step(fields: dict[str, Any], schema: Callable[[Any], TableSchema]) -> Step:
    kind = fields["kind"]
    if kind == "create":
        return CreateTarget()
    if kind == "adopt":
        return AdoptTarget()
    if kind == "recreate":
        return RecreateTarget()
    if kind == "drop":
        return DropTarget()
    if kind == "events":
        newer = fields.get("newer", False)
        return ApplyEvents(_splits(fields["splits"]), fields["mode"], fields["bytes"], newer)
    if kind == "chunks":
        chunks = tuple(StagedChunk.from_json(chunk) for chunk in fields["chunks"])
        scans = tuple(Scan(_splits(scan["splits"]), scan["exclude"]) for scan in fields["scans"])
        newer = fields.get("newer", False)
        return PlaceChunks(chunks, scans, fields["mode"], fields.get("window"), newer)
    if kind == "cascades":
        return ApplyCascades(fields["after"], fields["rows"], fields["reading"], fields.get("alone", False))
    if kind == "truncate":
        return TruncateTarget(fields["timestamp_us"], fields["sequence"])
    if kind == "evolve":
        origins = tuple(ColumnOrigin(**origin) for origin in fields["origins"])
        return Evolve(schema(fields["schema"]), origins, fields["refills"], _kept(fields["kept"], schema))
    if kind == "delete_older":
        return DeleteOlder(fields["sequence"])
    if kind == "park":
        return Park(**{name: value for name, value in fields.items() if name != "kind"})
    raise ValueError(f"unknown step {kind!r} in a stored plan")


def _splits_json(splits: Iterable[Split]) -> list[dict[str, Any]]:
    return [
        {
            "path": split.path,
            "base": split.base,
            "start": split.start,
            "end": split.end,
            "preamble": split.preamble,
        }
        for split in splits
    ]


def _splits(items: list[dict[str, Any]]) -> tuple[Split, ...]:
    return tuple(
        Split(
            path=item["path"],
            base=item["base"],
            start=item["start"],
            end=item["end"],
            preamble=tuple((path, base, offset) for path, base, offset in item["preamble"]),
        )
        for item in items
    )
