"""`penstock receive FILE`: runs only the receiver, until it is stopped."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from pathlib import Path

from penstock import config as configuration
from penstock.errors import ConfigError, TransientError
from penstock.sources.registry import kind
from penstock.sources.stop_signals import Stopping, obey_parent
from penstock.state.moved import refuse_moved

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = 32 * 1024**2
"""Bytes of freed memory that the allocator keeps. Each batch of events needs buffers, which are freed again;
together they are some MB."""


def _keep_buffers() -> None:
    """Makes glibc keep freed buffers instead of returning them to the kernel. Every part of the stream
    needs buffers of half a MiB. Mapping and clearing them each time costs about a quarter of the
    receiver's time."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def receive(file: Path, *, child: bool, start_place: str | None = None, source: str = "") -> None:
    """Runs until SIGTERM or SIGINT; with `child`, until standard input ends. `start_place`: a place in the
    source's log that a new relay log must have. Raises errors that it cannot retry."""
    stopping = Stopping()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if child:
        obey_parent(stopping)
    _keep_buffers()
    config = _load(file, source)
    if start_place is not None:
        config = config.model_copy(update={"source": config.source.beginning_at(start_place)})
    refuse_moved(config.state)
    known = kind(config.source.type)
    if known.receive is None:
        raise ConfigError(f"A source of type {known.name} has no receiver that runs by itself.")
    try:
        known.receive(config, stopping)
    except TransientError:
        if not stopping:  # else it was interrupted while it waited for something
            raise


def _load(file: Path, source: str) -> configuration.PipelineConfig:
    """The configuration in a pipeline file, or in the file of a subscription server."""
    with contextlib.suppress(OSError):
        if b"destinations" in file.read_bytes():
            from penstock.serve import settings  # few receivers need it

            if settings.is_server_file(file):
                found = settings.load(file)
                if source not in found.logs:
                    names = ", ".join(found.logs)
                    raise ConfigError(f"{file} has the sources {names}.", hint="Choose one with `--source`.")
                return found.pipeline_of(source)
    return configuration.load(file)
