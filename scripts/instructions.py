"""Counts the instructions the core needs to decode a row image, to frame an event, and to write a key into a
key run and to find it there, against what was committed.

python3 scripts/instructions.py [--renew]

Instructions do not depend on what else the machine does, so a change that makes the core slower by a few
percent shows. The logs are in `core/bench` (`generate.py` there), as are the numbers
(`instructions.json`). Counted is what more passes over a log add to one pass. Other compilers and C
libraries give other numbers: renew them together with the tools.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "core" / "bench"
NUMBERS = BENCH / "instructions.json"
ORDERS = [str(BENCH / "orders.json"), str(BENCH / "orders.binlog"), "0", "0"]
RUN = [str(ROOT / "core" / "target" / "instructions.run"), "20000"]
COUNTED = {layout: ["decode", *ORDERS, layout] for layout in ("changelog", "after", "latest")} | {
    "frame": ["frame", str(BENCH / "small.binlog")],
    "key_build": ["key_run", "build", *RUN],
    "key_find": ["key_run", "find", *RUN],
    "debezium": ["encode", ORDERS[1], "debezium"],
    "maxwell": ["encode", ORDERS[1], "maxwell"],
    "avro": ["encode", ORDERS[1], "avro"],
    "protobuf": ["encode", ORDERS[1], "protobuf"],
}
"""The example and its arguments, by the name of the number. `key_find` reads what `key_build` writes."""
FORMATS = ("debezium", "maxwell", "avro", "protobuf")
UNITS = {"frame": "event", "key_build": "key", "key_find": "key", **dict.fromkeys(FORMATS, "message")}
"""What is counted. The others are counted per row image."""
EXAMPLES = ("decode", "encode", "frame", "key_run")
MORE = 1.05
LESS = 0.97
PASSES = 6


def main() -> int:
    renew = sys.argv[1:] == ["--renew"]
    if shutil.which("valgrind") is None:
        print(red("instructions: not checked, because valgrind is missing (apt-get install valgrind)"))
        return 1 if renew else 0
    build()
    # A layout may have fewer rows than the log has images.
    counts = {name: run([*command(COUNTED[name]), "1"])[0] for name in ("changelog", *UNITS)}
    found = {
        name: round(instructions(example) / counts.get(name, counts["changelog"]))
        for name, example in COUNTED.items()
    }
    if renew:
        NUMBERS.write_text(json.dumps(found, indent=2) + "\n")
        print(f"instructions: {NUMBERS.relative_to(ROOT)} now has {found}")
        return 0
    return compare(found, json.loads(NUMBERS.read_text()))


def red(text: str) -> str:
    """In red where it can be seen: at a terminal, or in the log of a CI run."""
    shown = sys.stdout.isatty() or os.environ.get("CI")
    return f"\033[1;31m{text}\033[0m" if shown and "NO_COLOR" not in os.environ else text


def compare(found: dict[str, int], committed: dict[str, int]) -> int:
    failed = better = False
    for name, count in found.items():
        limit = committed[name]
        share = count / limit
        failed, better = failed or share > MORE, better or share < LESS
        unit = UNITS.get(name, "row image")
        print(f"instructions per {unit}, {name}: {count} (committed: {limit}, {share - 1:+.1%})")
    if failed:
        print(f"More than {MORE - 1:.0%} above what is committed: find out why before you renew the numbers.")
    elif better:
        print("Better than what is committed: keep it with `make instructions ARGS=--renew`.")
    return int(failed)


def build() -> None:
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    command = [cargo, "build", "--release", "--quiet", *(f"--example={name}" for name in EXAMPLES)]
    subprocess.run(command, cwd=ROOT / "core", check=True)


def run(command: list[str]) -> tuple[int, str]:
    """The rows (or events) it says it gave, and what it wrote beside."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["rows"], done.stderr


def command(example: list[str]) -> list[str]:
    return [str(ROOT / "core" / "target" / "release" / "examples" / example[0]), *example[1:]]


def instructions(example: list[str]) -> float:
    """Of one pass over the log."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command(example)]
    counts = []
    for passes in (1, 1 + PASSES):
        _, said = run([*valgrind, str(passes)])
        collected = re.search(r"Collected : (\d+)", said)
        if collected is None:
            sys.exit(f"callgrind did not say what it counted:\n{said}")
        counts.append(int(collected[1]))
    return (counts[1] - counts[0]) / PASSES


if __name__ == "__main__":
    sys.exit(main())
