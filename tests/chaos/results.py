"""What seeds have found: `python -m tests.chaos.results` prints kind × runs × found × fixed of all seeds in
`played.jsonl`. `--keep FILE…` adds what `make chaos` wrote; `--docs` writes the table into docs/chaos.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.schedule import KINDS, MYSQL

DOCS = Path(__file__).parents[2] / "docs" / "chaos.md"
CASES = Path(__file__).with_name("cases.json")
PLAYED = Path(__file__).with_name("played.jsonl")
"""A line for each seed that was played: its last verdict, without the notes."""
BEGIN, END = "<!-- table: python -m tests.chaos.results -->", "<!-- end of the table -->"
KEPT = ("source", "seed", "lead", "sink", "faults", "skipped", "found", "seconds")

Verdict = Mapping[str, Any]


def kinds_of(verdict: Verdict) -> list[str]:
    return list(dict.fromkeys(fault.partition("@")[0] for fault in verdict["faults"]))


def table(verdicts: Iterable[Verdict]) -> str:
    """Markdown, of one run. A seed counts for each kind it has; what it found counts for its lead alone."""
    verdicts = list(verdicts)
    found = _by_lead(verdict for verdict in verdicts if verdict["found"])
    return _table(verdicts, {"found": found})


def summary(verdicts: Iterable[Verdict], cases: Iterable[Verdict]) -> str:
    """Markdown, of all seeds ever played. `found` and `fixed` count bugs, each a committed case; `open`
    counts seeds whose last verdict is not clean."""
    verdicts, cases = list(verdicts), list(cases)
    return _table(
        verdicts,
        {
            "found": _by_lead(cases),
            "fixed": _by_lead(case for case in cases if case["fixed"]),
            "open": _by_lead(verdict for verdict in verdicts if verdict["found"]),
        },
    )


def _table(verdicts: list[Verdict], numbers: Mapping[str, Mapping[str, int]]) -> str:
    runs, skipped = (
        _by_kind(v for v in verdicts if not v["skipped"]),
        _by_kind(v for v in verdicts if v["skipped"]),
    )
    lines = [_row("kind", "what happens", "runs", *numbers), "|---" * (3 + len(numbers)) + "|"]
    for kind, words in KINDS.items():
        times = f"{runs[kind]}" + (f" ({skipped[kind]} skipped)" if skipped[kind] else "")
        lines.append(_row(f"`{kind}`", words, times, *(by_kind[kind] for by_kind in numbers.values())))
    totals = (sum(by_kind.values()) for by_kind in numbers.values())
    lines.append(_row(f"**{len(verdicts)} seeds**", "", sum(runs.values()), *totals))
    return "\n".join(lines)


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _by_kind(verdicts: Iterable[Verdict]) -> dict[str, int]:
    numbers = dict.fromkeys(KINDS, 0)
    for verdict in verdicts:
        for kind in kinds_of(verdict):
            numbers[kind] += 1
    return numbers


def _by_lead(verdicts: Iterable[Verdict]) -> dict[str, int]:
    numbers = dict.fromkeys(KINDS, 0)
    for verdict in verdicts:
        numbers[verdict["lead"]] += 1
    return numbers


def load(paths: Iterable[Path]) -> list[Verdict]:
    lines = [line for path in paths if path.exists() for line in path.read_text("utf-8").splitlines()]
    return [{"source": MYSQL, **json.loads(line)} for line in lines]


def keep(verdicts: Iterable[Verdict], played: Path = PLAYED) -> None:
    """Adds them to the seeds that were played. Of a seed that was played again the newest verdict counts."""
    seeds = {(verdict["source"], verdict["seed"]): verdict for verdict in [*load([played]), *verdicts]}
    lines = [json.dumps({name: seeds[seed][name] for name in KEPT}) + "\n" for seed in sorted(seeds)]
    played.write_text("".join(lines), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.results")
    parser.add_argument(
        "--keep", type=Path, nargs="+", metavar="FILE", default=[], help="result files to add"
    )
    parser.add_argument("--docs", action="store_true", help="write the table into docs/chaos.md")
    arguments = parser.parse_args()
    if arguments.keep:
        keep(load(arguments.keep))
    text = summary(load([PLAYED]), json.loads(CASES.read_text("utf-8")))
    if not arguments.docs:
        print(text)
        return 0
    before, _, rest = DOCS.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
