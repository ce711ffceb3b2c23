"""A pipeline, as Python programs and `penstock run` use it.

`Pipeline.run` first checks everything that must be true before anything is started. Then it starts the parts
in the order in which one needs another. `run.py` has the run itself.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.failures.messages import explained
from penstock.relaylog.files import LogPlace
from penstock.runtime import targets
from penstock.runtime.log_needs import register
from penstock.runtime.progress import Progress
from penstock.runtime.run import Run
from penstock.runtime.shutdown import Ending, leave_by_force
from penstock.signals.channels import rest_server, send
from penstock.signals.settings import with_signals
from penstock.sources import open_source
from penstock.sources.preflight import refuse
from penstock.state import StateStore
from penstock.state.report import forget_report, forget_status

log = logging.getLogger(__name__)


class Pipeline:
    """A pipeline: `Pipeline.load("shop.yaml").run()`.

    `run` blocks until another thread or a signal handler calls `stop()`. With `once=True` it also ends when
    the snapshot is done and the targets have everything that was committed at the source before the call.
    It raises a `PenstockError` if the pipeline cannot continue. Nothing is lost then; the next run
    continues.
    """

    def __init__(self, config: PipelineConfig, *, path: Path | None = None) -> None:
        self.config = config
        self._path = path
        self._stopping = threading.Event()
        self.exits = False
        """Whether this process may exit to keep `stop_timeout`, because it only runs this pipeline."""
        self.end_screen: Callable[[], None] = lambda: None
        """Called before this process exits by force, to give the terminal back."""
        self.progress: Progress | None = None

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """A pipeline from its pipeline file."""
        return cls(configuration.load(path), path=Path(path).resolve())

    def stop(self) -> None:
        """Asks a running pipeline to end after the current epoch. Returns at once. May be called from a
        signal handler."""
        self._stopping.set()

    def signal(self, kind: str, data: dict[str, Any], *, signal_id: str | None = None) -> str:
        """Sends a signal (docs/signals.md) to the pipeline, in whatever process it runs. Returns the
        signal's id. Raises `ConfigError` if this is not a signal."""
        return send(self.config, kind, data, signal_id)

    def run(self, *, once: bool = False, on_progress: Callable[[Progress], None] | None = None) -> Progress:
        """Runs the pipeline: see the class. `on_progress` is called about once a second."""
        config = self.config
        directory.make(config.state, "state")
        with directory.disk_errors_explained(), contextlib.ExitStack() as stack:
            stack.enter_context(directory.held(config.state))
            forget_status(config.state)
            directory.close_to_others(config.state, "state", open_=config.open_paths)
            directory.make(config.state / "spark", "state")
            stack.callback(forget_report, config.state)
            ending = stack.enter_context(Ending(self._stopping, config.stop_timeout / 1000, exits=self.exits))
            ending.forced, ending.end_screen = partial(leave_by_force, config.state), self.end_screen
            config = stack.enter_context(configuration.with_lent_secrets(config))
            stack.enter_context(explained("The pipeline stopped", config.state))
            targets.check_paths(config)
            known = StateStore.exists(config.state)  # otherwise there are no signals yet
            opened = partial(StateStore, config.state, owner=True)
            state = stack.enter_context(contextlib.closing(opened())) if known else None
            source = open_source(config, foreign_keys=config.cascades == "apply")
            stack.callback(source.close)
            ending.interrupt = source.interrupt
            findings = source.preflight.check(with_signals(config, state) if state is not None else config)
            refuse(findings)
            for finding in findings:
                if finding.level == "warning":
                    log.warning("%s", finding.message)
            state = state or stack.enter_context(contextlib.closing(opened()))
            state.limit_signals(config.signals)
            stack.enter_context(targets.locked(config, state))
            targets.check_relay_log(LogPlace.of(config), state)
            source.preflight.check_start()  # before Spark is started in parallel with the receiver
            consumer = stack.enter_context(contextlib.closing(register(config, state)))
            rest = stack.enter_context(rest_server(config, state))
            receiver = source.receiver(self._receiver_file())
            stack.callback(receiver.stop)
            receiver.start()
            run = Run(config, state, source, receiver, ending, self._stopping, consumer, rest, once=once,
                       on_progress=on_progress)  # fmt: skip
            stack.callback(run.close)
            stack.push(ending.begin_on_error)
            run.prepare(findings)
            self.progress = run.loop()
            return self.progress

    def _receiver_file(self) -> Path:
        """The pipeline file that the receiver's process reads. It is written into the state if there is
        none."""
        if self._path is not None:
            return self._path
        path = self.config.state / "pipeline.yaml"
        configuration.save(self.config, path)
        return path
