"""Lists rows that cannot be transformed: `transforms` with `on_error: dead_letter`.

Those of a commit are in a file of their own. A commit that is repeated writes the same file again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from penstock.disk import directory
from penstock.disk.replace import PRIVATE, replace_by
from penstock.model.not_numbers import with_names
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.names import directory_name

FOLDER = "dead_letters"

Letter = dict[str, Any]
"""The entry of the list for one row."""


@contextlib.contextmanager
def listing(folder: Path, table: TableId, commit: Commit) -> Iterator[Callable[[Letter], None]]:
    """Takes the rows for the list of a commit, which is durable when the context ends. Lines of JSON. Without
    rows, there is no list."""
    target = folder / directory_name(str(table))
    path = target / f"e{commit.epoch:012d}s{commit.step:04d}.jsonl"
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.ExitStack() as stack:
        file: IO[str] | None = None

        def add(letter: Letter) -> None:
            nonlocal file
            if file is None:
                directory.make(folder, "state")
                directory.make(target, "state")
                stack.callback(draft.unlink, missing_ok=True)
                file = stack.enter_context(open(draft, "w", encoding="utf-8", opener=_private))
            line = json.dumps(with_names({**letter, "epoch": commit.epoch}), default=str, ensure_ascii=False)
            file.write(f"{line}\n")

        yield add
        if file is not None:
            file.flush()
            replace_by(path, draft)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


class Letters:
    """The rows of an epoch that failed, by table. A row of the log that is transformed twice, because its
    transaction is large, is listed once."""

    def __init__(self) -> None:
        self._rows: dict[TableId, dict[tuple[Any, ...], Letter]] = {}

    def of_log(self, table: TableId, letters: Sequence[Letter]) -> None:
        # Rows of one compressed transaction have one offset. They are transformed together.
        seen: Counter[tuple[Any, ...]] = Counter()
        for one in letters:
            place = (one["offset"], one.get("change"))
            seen[place] += 1
            self._rows.setdefault(table, {})[(place, seen[place])] = one

    def of_snapshot(self, table: TableId, letters: Sequence[Letter]) -> None:
        for one in letters:
            of_table = self._rows.setdefault(table, {})
            of_table[("snapshot", len(of_table))] = one

    def write(self, folder: Path, commit: Commit) -> None:
        """Makes the list durable. Called before the epoch is durable."""
        for table, rows in self._rows.items():
            with listing(folder, table, commit) as add:
                for one in rows.values():
                    add(one)
