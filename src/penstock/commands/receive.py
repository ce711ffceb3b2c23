"""`penstock receive FILE`: the receiver alone, until it is stopped."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

from penstock import config as configuration
from penstock.sources.mysql.receiver import Receiver, Stopping, stop_with_parent

log = logging.getLogger(__name__)


def receive(file: Path, *, child: bool) -> None:
    """Runs until SIGTERM or SIGINT, or, with `child`, until standard input ends. Raises what it cannot go
    on with."""
    stopping = Stopping()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if child:
        stop_with_parent(stopping)
    config = configuration.load(file)
    log.info("receiving from %s:%s into %s", config.source.host, config.source.port, config.relay_log_path)
    Receiver(config, stopping).run()
