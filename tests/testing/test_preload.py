"""What processes are made to believe. The programs under test are Python's, which know nothing of it."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import preload, small_disk
from penstock.testing.preload import Preloaded
from penstock.testing.small_disk import SmallDisk

pytestmark = pytest.mark.skipif(bool(preload.missing()), reason=preload.missing())


@pytest.fixture
def preloaded(tmp_path: Path) -> Iterator[Preloaded]:
    with Preloaded(tmp_path / "preloaded") as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def run(program: str, environment: dict[str, str], *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wall_clock_steps_and_the_steady_one_does_not(preloaded: Preloaded) -> None:
    program = "import time; print(time.time(), time.monotonic())"
    environment = preloaded.environment(clock=True)
    for seconds in (0, 3600, -86400.5):
        preloaded.step_clock(seconds)
        wall, steady = map(float, run(program, environment).split())
        assert abs(wall - seconds - time.time()) < 30
        assert abs(steady - time.monotonic()) < 30


def test_writes_below_a_folder_are_refused_and_others_are_not(
    preloaded: Preloaded, root: Path, tmp_path: Path
) -> None:
    program = """
import os, sys
def tried(what):
    try:
        what()
        return "0"
    except OSError as error:
        return str(error.errno)
root, other = sys.argv[1:]
print(tried(lambda: open(f"{root}/a", "w")), tried(lambda: os.mkdir(f"{root}/d")),
      tried(lambda: os.rename(f"{other}/kept", f"{root}/kept")), tried(lambda: open(f"{root}/kept").read()),
      tried(lambda: open(f"{other}/b", "w")))
"""
    (root / "kept").touch()
    (tmp_path / "kept").touch()
    environment = preloaded.environment(refused=root)
    preloaded.refuse(errno.EROFS)
    refused = str(errno.EROFS)
    assert run(program, environment, root, tmp_path).split() == [refused, refused, refused, "0", "0"]
    preloaded.refuse(0)
    assert run(program, environment, root, tmp_path).split() == ["0"] * 5


WRITES = """
import os, sys
root = sys.argv[1]
def sync(path):
    handle = os.open(path, os.O_RDONLY); os.fsync(handle); os.close(handle)
with open(f"{root}/synced", "w") as file:
    file.write("durable"); file.flush(); os.fsync(file.fileno())
    file.write(", lost"); file.flush()
sync(root)
with open(f"{root}/unnamed", "w") as file:
    file.write("durable"); file.flush(); os.fsync(file.fileno())
open(f"{root}/draft", "w").write("new")
sync(f"{root}/draft")
os.rename(f"{root}/draft", f"{root}/renamed")
os.mkdir(f"{root}/folder")
"""


def contents(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() if path.is_file() else "" for path in root.iterdir()}


def test_power_loss_leaves_what_fsync_has_made_durable(preloaded: Preloaded, root: Path) -> None:
    run(WRITES, preloaded.environment(roots=[root]), root)
    assert contents(root)["synced"] == "durable, lost"
    lost = preloaded.lose_power(random.Random(1), "strict")
    assert contents(root) == {"synced": "durable"}
    assert "root/synced: 6 bytes" in lost and "root/unnamed: its name" in lost


def test_power_loss_with_a_journal_of_names_keeps_names(preloaded: Preloaded, root: Path) -> None:
    run(WRITES, preloaded.environment(roots=[root]), root)
    preloaded.lose_power(random.Random(1), "names")
    assert contents(root) == {"synced": "durable", "unnamed": "durable", "renamed": "new", "folder": ""}


def test_power_loss_keeps_what_sqlite_has_committed_and_no_more(preloaded: Preloaded, root: Path) -> None:
    program = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL"); db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE t (n)")
for n in range(50):
    db.execute("INSERT INTO t VALUES (?)", (n,))
db.execute("BEGIN"); db.execute("INSERT INTO t VALUES (1000)")
os._exit(0)
"""
    for survival in ("strict", "names", "mixed"):
        run(program, preloaded.environment(roots=[root]), root / f"{survival}.sqlite")
    preloaded.lose_power(random.Random(1), "strict")
    for survival in ("strict", "names", "mixed"):
        database = sqlite3.connect(root / f"{survival}.sqlite")
        assert database.execute("SELECT count(*), max(n) FROM t").fetchone() == (50, 49)
        database.close()


@pytest.mark.skipif(bool(small_disk.missing()), reason=small_disk.missing())
def test_a_small_disk_is_full_until_it_is_freed(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", mib=4) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(bytes(8192))
        disk.free()
        (disk.folder / "more").write_bytes(bytes(8192))
    assert not list((tmp_path / "disk").iterdir())
