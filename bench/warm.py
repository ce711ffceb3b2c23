"""What a measured program finds: files in memory, and Spark as `penstock prepare` leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyspark

from penstock.artifacts.maven import cache_directory, java
from penstock.commands.prepare import prepare, sink_options
from penstock.sinks.jars import jars
from penstock.spark.classes import archive

SINKS = ("iceberg", "delta")
_PIECE_BYTES = 1024**2


def prepare_spark(*files: Path) -> None:
    """For sinks on a disk, and for those of these pipeline files."""
    prepare([*SINKS, *map(str, files)], cluster=False, as_json=False)


def read_files() -> None:
    """Reads what Java programs read while they run, so that it comes from memory afterwards.

    A JVM opens its jars as it needs them, also in the midst of what is measured: from a cold disk the first
    merge into Iceberg took 16.5 s instead of 4.
    """
    piece = bytearray(_PIECE_BYTES)
    for path in _files():
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def _files() -> Iterator[Path]:
    """Of Java itself, of Spark, and all that was fetched from Maven Central, for us and for the peers."""
    yield from filter(Path.is_file, (archive(jars([sink_options(sink)])) for sink in SINKS))
    spark = Path(pyspark.__file__).with_name("jars")
    for folder in (Path(java()).resolve().parents[1] / "lib", spark, cache_directory() / "artifacts"):
        yield from filter(Path.is_file, folder.rglob("*"))
