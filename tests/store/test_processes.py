"""Stores in other processes: killed ones, forked ones, many at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.conftest import options

from penstock.store.draft import KEPT_SECONDS, _swept
from penstock.store.opening import open_store
from penstock.testing.servers.s3 import KEY_ID, SECRET, S3Server

_FORK = """
import os, sys
from penstock.errors import InternalError
from penstock.store.credentials import KeysFromEnvironment
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions
from penstock.testing.memory import peak_bytes
store = open_store(sys.argv[1], StoreOptions(KeysFromEnvironment("K", "S"), sys.argv[2]))
if sys.argv[3] == "used":
    store.put("parent", b"1")
child = os.fork()
if child == 0:
    try:
        store.put("child", b"1")
    except InternalError:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("before", "code"), [("unused", "0"), ("used", "7")])
def test_a_forked_process_works_or_refuses_but_does_not_hang(
    s3_server: Callable[[str], S3Server], url: str, before: str, code: str
) -> None:
    command = [sys.executable, "-c", _FORK, url, s3_server("moto").url, before]
    environment = {**os.environ, "K": KEY_ID, "S": SECRET}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == code


_INCREMENT = """
import sys
from penstock.store.errors import ObjectChanged
from penstock.store.opening import open_store
store = open_store(sys.argv[1])
for _ in range(20):
    while True:
        content = store.get("counter")
        try:
            store.put_if_unchanged("counter", b"%d" % (int(content.data) + 1), seen=content.info.version)
            break
        except ObjectChanged:
            pass
"""


def test_increments_by_processes_are_not_lost_in_a_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    store.put("counter", b"0")
    command = [sys.executable, "-c", _INCREMENT, tmp_path.as_uri()]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(300) for process in running] == [0, 0, 0]
    assert store.get("counter").data == b"60"


KILLED = """
import os, signal, sys
from penstock.store.opening import open_store
store = open_store(sys.argv[1])
upload = store.upload("one")
upload.write(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_no_object_and_its_draft_is_removed_a_day_later(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path.as_uri()], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    store = open_store(tmp_path.as_uri())
    assert list(store.objects()) == []
    drafts = tmp_path / ".penstock" / "drafts"
    (left,) = drafts.iterdir()
    store.put("two", b"2")
    assert left.exists(), "its writer may live"
    os.utime(left, (0, left.stat().st_mtime - KEPT_SECONDS - 60))
    _swept.clear()  # as in a new process
    store.put("two", b"3")
    assert list(drafts.iterdir()) == []


def peak_mb(code: str, *arguments: str) -> float:
    """The most memory that a process of its own had, beyond what it had after its imports."""
    program = f"""
import os, sys
from penstock.store.credentials import KeysFromEnvironment
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions
from penstock.testing.memory import peak_bytes
store = open_store(sys.argv[1], StoreOptions(KeysFromEnvironment("K", "S"), sys.argv[2]))
store.put("small", b"1")
before = peak_bytes(os.getpid())
{code}
print((peak_bytes(os.getpid()) - before) / 1e6)
"""
    environment = {**os.environ, "K": KEY_ID, "S": SECRET}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


_UPLOAD = """
piece = bytes(1 << 20)
with store.upload("large") as upload:
    for _ in range(300):
        upload.write(piece)
assert store.stat("large").size == 300 << 20
assert store.get_range("large", (300 << 20) - 10, 300 << 20) == bytes(10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "moto", "s3proxy"])
def test_memory_is_bounded_during_a_large_upload(
    s3_server: Callable[[str], S3Server], url: str, tmp_path: Path, kind: str
) -> None:
    """Five parts of 8 MiB, and what the library below holds while it sends them."""
    place = (tmp_path.as_uri(), "") if kind == "local" else (url, s3_server(kind).url)
    assert peak_mb(_UPLOAD, *place) < 120


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "moto", "s3proxy"])
def test_a_hundred_megabytes_are_put_at_once(
    s3_server: Callable[[str], S3Server], url: str, tmp_path: Path, kind: str
) -> None:
    store = (
        open_store(tmp_path.as_uri()) if kind == "local"
        else open_store(url, options(s3_server(kind).url, seconds=200))
    )  # fmt: skip
    data = os.urandom(1 << 20) * 100
    version = store.put("put", data)
    assert store.put_if_absent("absent", data)
    assert store.put_if_unchanged("put", data, seen=version)
    for key in ("put", "absent"):
        assert store.get(key).data == data
