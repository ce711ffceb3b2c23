"""The index of a table against a model: which row of which data file has a key."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.sinks.files import FIELD_ID
from penstock.sinks.lake.index import table_index
from penstock.sinks.lake.index.manifest import NAME, Manifest, RunOf
from penstock.sinks.lake.index.table_index import (
    DamagedRun,
    Indexed,
    Matches,
    TableIndex,
    chosen_to_merge,
)

FIELDS = pa.schema([pa.field("id", pa.int64(), metadata={FIELD_ID: "1"})])
MIB = 1024**2
Content = dict[str, list[int]]
"""Keys of the rows of data files."""


def keys(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=FIELDS)


def opened(directory: Path) -> TableIndex:
    return TableIndex(directory, FIELDS, MIB)


def files(content: Content) -> list[Indexed]:
    return [Indexed(location, len(rows)) for location, rows in content.items()]


def cover(index: TableIndex, content: Content) -> None:
    index.cover(files(content), lambda file: [keys(*content[file.location])])


def found(matches: dict[str, Matches]) -> set[tuple[int, str, int]]:
    """Number of the key, data file, row."""
    return {
        (number, location, row)
        for location, one in matches.items()
        for number, row in zip(one.keys.tolist(), one.rows.tolist(), strict=True)
    }


CONTENT: Content = {"a": [5, 6, 7], "b": [7, 8], "c": [], "d": [6]}


def test_rows_are_found_in_live_files_by_their_keys(tmp_path: Path) -> None:
    index = opened(tmp_path)
    cover(index, CONTENT)
    assert found(index.find([keys(7, 9), keys(6)], CONTENT)) == {
        (0, "a", 2),
        (0, "b", 0),
        (2, "a", 1),
        (2, "d", 0),
    }
    assert found(index.find([keys(7)], ["b"])) == {(0, "b", 0)}
    assert not index.uncovered(files(CONTENT))


def test_what_was_saved_is_there_in_the_next_process(tmp_path: Path) -> None:
    index = opened(tmp_path)
    cover(index, {"a": CONTENT["a"], "c": []})
    index.save()
    cover(index, {"b": CONTENT["b"]})
    again = opened(tmp_path)
    assert [one.location for one in again.uncovered(files(CONTENT))] == ["b", "d"]
    assert found(again.find([keys(7)], CONTENT)) == {(0, "a", 2)}
    assert len(list(tmp_path.glob("*.run"))) == 1, "what the manifest does not name is removed"


def test_an_index_has_no_files_open_between_its_look_ups(tmp_path: Path) -> None:
    """A pipeline may have thousands of tables."""
    index = opened(tmp_path)
    for location, rows in CONTENT.items():
        cover(index, {location: rows})
    index.save()
    again = opened(tmp_path)
    for one in (index, again):
        assert found(one.find([keys(8)], CONTENT)) == {(0, "b", 1)}
    links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert not [link for link in links if str(link.readlink()).startswith(str(tmp_path))]


def test_a_run_that_somebody_removed_is_read_again(tmp_path: Path) -> None:
    index = opened(tmp_path)
    cover(index, {"a": CONTENT["a"]})
    [run] = tmp_path.glob("*.run")
    cover(index, {"b": CONTENT["b"]})
    run.unlink()
    with pytest.raises(DamagedRun, match=run.name):
        index.find([keys(7)], CONTENT)
    assert [one.location for one in index.uncovered(files({"a": [], "b": []}))] == ["a"]
    assert found(index.find([keys(7)], CONTENT)) == {(0, "b", 0)}


def test_a_key_in_another_type_begins_a_new_index(tmp_path: Path) -> None:
    index = opened(tmp_path)
    cover(index, CONTENT)
    index.save()
    wider = pa.schema([pa.field("id", pa.string(), metadata={FIELD_ID: "1"})])
    assert len(TableIndex(tmp_path, wider, MIB).uncovered(files(CONTENT))) == len(CONTENT)


def test_many_small_runs_become_few(tmp_path: Path) -> None:
    index = opened(tmp_path)
    content = {f"f{number}": [number, number + 1] for number in range(100)}
    for location, rows in content.items():
        cover(index, {location: rows})
        if index.wants_tidying():
            index.tidy(content)
    assert len(list(tmp_path.glob("*.run"))) < 20
    assert found(index.find([keys(50)], content)) == {(0, "f50", 0), (0, "f49", 1)}
    gone = {location: rows for location, rows in content.items() if location != "f50"}
    index.tidy(gone)
    assert found(index.find([keys(50)], gone)) == {(0, "f49", 1)}


def test_files_that_are_about_to_be_committed_are_kept(tmp_path: Path) -> None:
    index = opened(tmp_path)
    cover(index, {"a": [1]})
    with index.held(["new"]):
        cover(index, {"new": [2]})
        index.tidy(["a"])
    assert not index.uncovered(files({"a": [1], "new": [2]}))
    index.tidy(["a"])
    assert [one.location for one in index.uncovered(files({"new": [2]}))] == ["new"]


def test_a_file_that_has_fewer_rows_than_it_should_is_not_covered(tmp_path: Path) -> None:
    index = opened(tmp_path)
    with pytest.raises(Exception, match="has 1 rows, and not 2"):
        index.cover([Indexed("a", 2)], lambda file: [keys(1)])
    assert index.uncovered([Indexed("a", 2)]) and not list(tmp_path.glob("*.run"))


def test_a_damaged_manifest_is_not_believed(tmp_path: Path) -> None:
    index = opened(tmp_path)
    cover(index, CONTENT)
    index.save()
    whole = (tmp_path / NAME).read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / NAME).write_bytes(damaged)
        assert Manifest.read(tmp_path) is None, place
    (tmp_path / NAME).write_bytes(whole[:-1])
    assert Manifest.read(tmp_path) is None


@pytest.mark.parametrize(
    ("runs", "dead", "chosen"),
    [
        ([(100, {1}), (100, {2})], set(), []),
        ([(100, {1}), (100, {2})], {2}, [1]),
        ([(100, {1, 3}), (100, {2})], {1}, []),
        ([(200, {1, 2, 3})], {1, 2}, [0]),
        ([(n, {n}) for n in range(10, 18)], set(), list(range(8))),
        ([(10**9, {0}), *[(n, {n}) for n in range(10, 17)]], set(), []),
    ],
)
def test_runs_are_merged_by_size_or_if_most_of_them_is_dead(
    runs: list[tuple[int, set[int]]], dead: set[int], chosen: list[int]
) -> None:
    made = [RunOf(str(number), entries, frozenset(of)) for number, (entries, of) in enumerate(runs)]
    rows = {number: one.entries // len(one.files) for one in made for number in one.files}
    assert [int(one.name) for one in chosen_to_merge(made, rows, dead)] == chosen


class Killed(BaseException):
    pass


@contextmanager
def killed_after(steps: int, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends what is done to the disk after so many steps, also in the middle of one."""
    left = steps

    def step(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            found = act(*args, **kwargs)
            if left == 0:
                raise Killed
            left -= 1
            return found

        return run

    with patch.context() as within:
        for name in ("merge_key_runs", "KeyRunWriter", "KeyRun"):
            within.setattr(table_index, name, step(getattr(table_index, name)))
        within.setattr(Manifest, "write", step(Manifest.write))
        within.setattr(Path, "unlink", step(Path.unlink))
        yield


class History:
    """A table whose files come and go, and its index."""

    def __init__(self, directory: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.choose = random.Random(seed)
        self.directory = directory
        self.patch = patch
        self.content: Content = {}
        self.live: set[str] = set()
        self.index = opened(directory)

    def step(self) -> None:
        way = self.choose.choice(
            [
                "commit",
                "commit",
                "compact",
                "compact",
                "roll back",
                "roll back",
                "tidy",
                "tidy",
                "save",
                "again",
                "kill",
                "damage",
            ]
        )
        if way == "commit":
            self.live.add(self.new_file())
            self.cover()
        elif way == "compact" and self.live:
            old = self.choose.sample(sorted(self.live), self.choose.randint(1, len(self.live)))
            self.live -= set(old)
            if self.choose.random() < 0.5:
                self.live.add(self.new_file())
        elif way == "roll back":
            self.live = set(
                self.choose.sample(sorted(self.content), self.choose.randint(0, len(self.content)))
            )
        elif way == "tidy":
            self.index.tidy(self.live)
        elif way == "save":
            self.index.save()
        elif way == "again":
            self.index = opened(self.directory)
        elif way == "kill":
            self.killed()
        elif way == "damage":
            self.damaged()
        self.compare()

    def new_file(self) -> str:
        location = f"f{len(self.content)}"
        self.content[location] = [self.choose.randrange(20) for _ in range(self.choose.randint(0, 4))]
        return location

    def cover(self) -> None:
        cover(self.index, {location: self.content[location] for location in self.live})

    def killed(self) -> None:
        try:
            with killed_after(self.choose.randrange(12), self.patch):
                for act in self.choose.sample(
                    [self.cover, lambda: self.index.tidy(self.live), self.index.save], 3
                ):
                    act()
        except Killed:
            pass
        self.index = opened(self.directory)

    def damaged(self) -> None:
        found = [*self.directory.glob("*.run"), *self.directory.glob(NAME)]
        runs = sorted(path for path in found if path.stat().st_size)
        if not runs:
            return
        path = self.choose.choice(runs)
        content = bytearray(path.read_bytes())
        if self.choose.random() < 0.3:
            del content[self.choose.randrange(len(content)) :]
        else:
            content[self.choose.randrange(len(content))] ^= 1 << self.choose.randrange(8)
        path.unlink()
        path.write_bytes(content)
        self.index = opened(self.directory)

    def compare(self) -> None:
        wanted = self.choose.sample(range(20), 10)
        while True:
            self.cover()
            try:
                matches = self.index.find([keys(*wanted)], self.live)
                break
            except DamagedRun:
                continue
        assert found(matches) == {
            (number, location, row)
            for number, key in enumerate(wanted)
            for location in self.live
            for row, value in enumerate(self.content[location])
            if value == key
        }


def histories(directory: Path, seeds: range, patch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        history = History(directory / str(seed), seed, patch)
        try:
            for _ in range(20):
                history.step()
        except Exception as error:
            raise AssertionError(f"history {seed}") from error


def test_in_any_history_every_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    histories(tmp_path, range(60), monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("thousand", range(10))
def test_in_ten_thousand_histories_every_row_is_found(
    thousand: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 100 + 1000 * thousand
    histories(tmp_path, range(first, first + 1000), monkeypatch)
