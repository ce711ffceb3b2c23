"""`make chaos SEEDS=1-1000 [MINUTES=…] [KINDS=…] [WORKERS=…]`: seeds side by side, a line for each.

`python -m tests.chaos.run --show 17` says what a seed does. `--results FILE` is appended to, a JSON line a
seed; the table at the end is of this run alone. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos import results
from tests.chaos.case import MARK, end_processes
from tests.chaos.play import verdict_of
from tests.chaos.schedule import KINDS, MYSQL, SOURCES, chosen, schedule

SEED_SECONDS_MAX = 700.0
"""Then a seed hangs: all it has started is ended, and that is what was found."""
READY_SECONDS = 120.0
SHOWN_MAX = 400


def main() -> int:
    arguments = _arguments()
    if arguments.show is not None:
        print(schedule(arguments.show, arguments.source).describe())
        return 0
    kinds = arguments.kinds.replace(",", " ").split()
    seeds = chosen(numbers(arguments.seeds), kinds, arguments.source)
    if not seeds:
        print("No seed of these has such a kind. Kinds: " + ", ".join(KINDS))
        return 2
    deadline = time.monotonic() + arguments.minutes * 60 if arguments.minutes else float("inf")
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as name:
        folder = (arguments.folder or Path(name)).resolve()
        verdicts = run(seeds, arguments.source, folder, arguments.workers, deadline, arguments.results)
    print()
    print(results.table(verdicts))
    found = [one for one in verdicts if one["found"]]
    print(f"\n{len(verdicts)} of {len(seeds)} seeds were played, {len(found)} found something; "
          f"{arguments.results} has all of it.")  # fmt: skip
    return 1 if found else 0


def numbers(text: str) -> list[int]:
    """`1-10 17,20` and the like."""
    found: list[int] = []
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def run(
    seeds: Sequence[int], source: str, folder: Path, workers: int, deadline: float, kept: Path
) -> list[dict[str, Any]]:
    """The verdicts, in the order in which they came."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    verdicts: list[dict[str, Any]] = []
    said = threading.Lock()

    def take(verdict: dict[str, Any]) -> None:
        with said, open(kept, "a") as file:
            verdicts.append(verdict)
            file.write(json.dumps(verdict) + "\n")
            print(line(verdict), flush=True)

    def work(number: int) -> None:
        with _Worker(folder / f"worker-{number}", source) as worker:
            while time.monotonic() < deadline:
                try:
                    seed = waiting.get_nowait()
                except queue.Empty:
                    return
                take(worker.play(seed))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts


def line(verdict: dict[str, Any]) -> str:
    outcome = "FOUND" if verdict["found"] else "skipped" if verdict["skipped"] else "ok"
    text = f"{verdict['source']} seed {verdict['seed']:<6} {outcome:<8} {verdict['seconds']:6.1f} s  "
    text += f"{verdict['sink']:<8}"
    text += " ".join(verdict["faults"]) + (f" ({verdict['skipped']})" if verdict["skipped"] else "")
    for found in verdict["found"][:4]:
        text += "\n    " + found.replace("\n", "\n    ")[:SHOWN_MAX]
    if len(verdict["found"]) > 4:
        text += f"\n    … and {len(verdict['found']) - 4} more"
    return text


class _Worker:
    """A process that plays seeds; another one after a seed that hangs."""

    def __init__(self, folder: Path, source: str) -> None:
        self._folder, self._source = folder, source
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> _Worker:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()

    def play(self, seed: int) -> dict[str, Any]:
        process = self._ready()
        assert process.stdin is not None
        process.stdin.write(f"{self._source} {seed}\n")
        process.stdin.flush()
        try:
            answer = self._answers.get(timeout=SEED_SECONDS_MAX)
        except queue.Empty:
            process.send_signal(signal.SIGUSR1)  # it says where it stands
            time.sleep(1)
            answer = ""
        if answer:
            return dict(json.loads(answer))
        said = self._log()
        self._end()
        verdict = verdict_of(schedule(seed, self._source))
        verdict.found = [f"the seed hangs, or its worker has died: {said[-3000:]}"]
        verdict.seconds = SEED_SECONDS_MAX
        return verdict.to_json()

    def _ready(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            with open(self._folder / "log", "ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.chaos.worker", str(self._folder / "seeds")],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    text=True, start_new_session=True,
                )  # fmt: skip
            self._answers = queue.SimpleQueue()
            threading.Thread(target=_pump, args=(self._process, self._answers), daemon=True).start()
        return self._process

    def _log(self) -> str:
        with suppress(OSError):
            return (self._folder / "log").read_text(errors="replace")
        return ""

    def _end(self) -> None:
        """Ends the worker, and all that its seeds have started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for folder in (self._folder / "seeds").glob("seed-*"):
            end_processes(folder)
            for place in ("state", "relay", "lake"):
                subprocess.run(["umount", "-l", folder / place], capture_output=True, check=False)


def _pump(process: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        answers.put(text)
    answers.put("")  # it has ended


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.run", description=f"See {MARK} in docs/chaos.md."
    )
    parser.add_argument("--seeds", default="1-10", help="such as 17, 1-1000 or 3,5,20-30")
    parser.add_argument("--source", choices=SOURCES, default=MYSQL, help="the database that is followed")
    parser.add_argument(
        "--kinds", default="", help="only seeds with a fault of these kinds: " + ", ".join(KINDS)
    )
    parser.add_argument("--minutes", type=float, default=0, help="no seed begins after this")
    parser.add_argument("--workers", type=int, default=2, help="seeds side by side")
    parser.add_argument("--results", type=Path, default=Path("chaos.jsonl"))
    parser.add_argument("--folder", type=Path, help="where seeds work (with PENSTOCK_CHAOS_KEEP=1 they stay)")
    parser.add_argument("--show", type=int, help="only say what this seed does")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
