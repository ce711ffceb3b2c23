"""The jars that Spark needs for a sink with its options, fetched on first use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.artifacts.maven import fetch
from penstock.artifacts.pinned import SHA256
from penstock.sinks import registry
from penstock.sinks.kind import SinkOptions

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""A local file system for Hadoop. Hadoop's own starts a process for each change of permissions and writes a
checksum file beside every file. This one does neither, which saves about 100 ms per micro-batch."""


def jars(sinks: Iterable[SinkOptions]) -> list[Path]:
    """Paths of the jars for sinks with these options."""
    found = [fetch(LOCAL_FILES)[0]]
    for options in sinks:
        kind = registry.kind(options.type)
        pins = {**kind.jars_sha256, **SHA256}  # no package may replace one of our jars
        found += [fetch(jar, pins=pins)[0] for jar in (*kind.jars, *kind.jars_for(options))]
    return list(dict.fromkeys(found))
