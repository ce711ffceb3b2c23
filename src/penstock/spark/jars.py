"""The jars that Spark needs for a sink, fetched on first use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.artifacts.maven import fetch
from penstock.artifacts.pinned import SHA256
from penstock.sinks.kind import SinkKind

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""A local file system for Hadoop. Hadoop's own starts a process for each change of permissions and writes a
checksum file beside every file. This one does neither, which saves about 100 ms per micro-batch."""


def jars(sinks: Iterable[SinkKind[Any]]) -> list[Path]:
    """Paths of the jars for these sinks."""
    found = [fetch(LOCAL_FILES)[0]]
    for sink in sinks:
        pins = {**sink.jars_sha256, **SHA256}  # no package may replace one of our jars
        found += [fetch(jar, pins=pins)[0] for jar in sink.jars]
    return found
