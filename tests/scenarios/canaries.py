"""Where row values may be, and who can be spoken to: looked at in a real run, beside `docs/security.md`.

Rows hold words that occur nowhere else, in a key, in a value and in what goes wrong. After the run every file
of the pipeline is searched for them, also inside what is compressed.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import SHORT_LIVED

KEY, VALUE, LATER = b"CANARYKEY123", b"CANARYVALUE123", b"CANARYLATER123"
SECRET = "CANARYSECRET123"
TOKEN = "0123456789abcdef-token"

OPTIONS: dict[str, Any] = {
    "http": {"listen": "127.0.0.1:0", "tokens": {"operator": {"token": TOKEN, "role": "operator"}}},
    "spark": {
        "master": "local[2]",
        "driver_memory": "1g",
        "conf": {**SHORT_LIVED, "spark.hadoop.fs.s3a.secret.key": SECRET},
    },
}
BEFORE = (
    "CREATE TABLE words (name VARCHAR(50) PRIMARY KEY, v VARCHAR(50))",
    *(f"INSERT INTO words VALUES ('{KEY.decode()}{n}', '{VALUE.decode()}{n}')" for n in range(9)),
)
CHANGES = (
    f"INSERT INTO words VALUES ('{KEY.decode()}L', '{LATER.decode()}')",
    f"UPDATE words SET v = '{LATER.decode()}2' WHERE name = '{KEY.decode()}1'",
    f"DELETE FROM words WHERE name = '{KEY.decode()}2'",
)

MAY_HOLD_ROWS = ("state/relay/*.binlog", "state/relay/prepared/*", "state/chunks/**", "state/cascades/**",
                 "state/tmp/**", "state/warehouse/**")  # fmt: skip
"""The log, staged chunks, what foreign keys did, Spark's scratch space, and targets."""
MAY_HOLD_KEYS = ("state/state.sqlite", "state/state.sqlite-wal", "state/state.sqlite-shm")
"""Bounds of chunks are keys."""


def matching(folder: Path, patterns: tuple[str, ...]) -> set[Path]:
    return {path for pattern in patterns for path in folder.glob(pattern)}


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def text_of(path: Path) -> bytes:
    """What the file holds; of Parquet, uncompressed."""
    data = b""
    with contextlib.suppress(OSError):  # it has gone
        data = path.read_bytes()
    if data[:4] == b"PAR1":
        with contextlib.suppress(OSError, pa.ArrowInvalid):  # or is being written
            data += str(parquet.read_table(path).to_pydict()).encode()
    return data


def files_with(folder: Path, secret: str) -> list[Path]:
    """The files below a folder that have this text in clear. Files may come and go meanwhile."""
    return [path for path in files(folder) if secret.encode() in text_of(path)]


def listening(root: psutil.Process) -> dict[str, list[tuple[str, int]]]:
    """Addresses on which a process and its children listen, by the process's name."""
    found: dict[str, list[tuple[str, int]]] = {}
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            for one in process.net_connections(kind="inet"):
                if one.status == psutil.CONN_LISTEN or (one.type == 2 and not one.raddr):
                    found.setdefault(process.name(), []).append((one.laddr.ip, one.laddr.port))
    return found


def arguments(root: psutil.Process) -> str:
    """What every account of the machine can read of a process and its children."""
    said = ""
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            said += " ".join(process.cmdline()) + "\n"
    return said


def is_loopback(address: str) -> bool:
    found: Any = ipaddress.ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def process_of(pipeline: RunningPipeline) -> psutil.Process:
    assert pipeline._process is not None
    return psutil.Process(pipeline._process.pid)


def assert_only_loopback_and_no_secret(pipeline: RunningPipeline) -> None:
    """While it runs."""
    found, said_to_all = listening(process_of(pipeline)), arguments(process_of(pipeline))
    assert "java" in said_to_all and not [word for word in (SECRET, TOKEN) if word in said_to_all]
    assert found, "the JVM and the REST server listen"
    assert not [one for places in found.values() for one in places if not is_loopback(one[0])], found


def assert_words_stay_where_they_belong(folder: Path, said: str) -> None:
    """`folder`: of a pipeline that has ended. `said`: what it and its commands printed."""
    for word in (KEY, VALUE, LATER):
        assert word.decode() not in said
    rows, keys = matching(folder, MAY_HOLD_ROWS), matching(folder, MAY_HOLD_KEYS)
    for path in files(folder):
        data = text_of(path)
        if path not in rows:
            assert VALUE not in data and LATER not in data, path
            assert path in keys or KEY not in data, path
    assert VALUE in b"".join(map(text_of, rows)), "the search finds what is there"
    for secret in (TOKEN, SECRET):
        assert secret.encode() not in b"".join(text_of(path) for path in files(folder / "state"))
