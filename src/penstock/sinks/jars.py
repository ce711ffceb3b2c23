"""The jars that Spark needs for a sink with its options, fetched on first use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.artifacts.maven import fetch_all
from penstock.artifacts.pinned import SHA256
from penstock.sinks import registry
from penstock.sinks.kind import SinkOptions

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""A local file system for Hadoop. Hadoop's own starts a process for each change of permissions and writes a
checksum file beside every file. This one does neither, which saves about 100 ms per micro-batch."""


def jars(sinks: Iterable[SinkOptions]) -> list[Path]:
    """Paths of the jars for sinks with these options."""
    wanted, pins, brought = [LOCAL_FILES], dict[str, str](), list[Path]()
    for options in sinks:
        kind = registry.kind(options.type)
        wanted += [*kind.jars, *kind.jars_for(options)]
        pins |= kind.jars_sha256
        brought += kind.own_jars(options)
    found = fetch_all(wanted, pins={**pins, **SHA256})  # no package may replace one of our jars
    return list(dict.fromkeys([*found, *brought]))
