"""A pipeline, as Python programs and `penstock run` use it.

`Pipeline.run` first checks everything that must be true before anything is started. Then it starts the parts
in the order in which one needs another. `run.py` has the run itself.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.failures.messages import explained
from penstock.http.packages import check_packages
from penstock.relaylog.files import LogPlace
from penstock.runtime import targets
from penstock.runtime.describe import describe, ensure_run
from penstock.runtime.notebook import Plan, Rows, Status
from penstock.runtime.parts import Started
from penstock.runtime.progress import Progress, change_json
from penstock.runtime.run import open_run
from penstock.runtime.shutdown import Ending, leave_by_force
from penstock.signals.opening import send
from penstock.signals.settings import with_signals
from penstock.sources import open_source
from penstock.sources.preflight import refuse
from penstock.state import StateStore
from penstock.state.moved import refuse_moved
from penstock.state.report import end_noted, forget_end, forget_status
from penstock.steps import step

log = logging.getLogger(__name__)


class Pipeline:
    """A pipeline: `Pipeline.load("shop.yaml").run()`, or without a file, with the same options:

        Pipeline(name="shop", source={"host": …}, tables=["shop.*"], sink={"type": "iceberg", "path": …},
                 state="state/shop").run(once=True)

    `run` blocks until another thread or a signal handler calls `stop()`. With `once=True` it also ends when
    the snapshot is done and the targets have everything that was committed at the source before the call.
    It raises a `PenstockError` if the pipeline cannot continue. Nothing is lost then; the next run
    continues.

    With `background=True`, `run` returns at once. As a context manager, the pipeline is stopped at the end:

        with pipeline.run(background=True):
            print(pipeline.status())

    `spark`: a session that exists already, in whose context the pipeline works. `ConfigError` names what it
    lacks. Without it, the pipeline starts Spark for itself, and stops it at the end.
    """

    def __init__(
        self,
        config: PipelineConfig | Mapping[str, Any] | None = None,
        *,
        path: Path | None = None,
        **options: Any,
    ) -> None:
        """`config` or `options`: what a pipeline file contains. Relative paths count from the working
        directory. Raises `ConfigError` for mistakes in them."""
        if not isinstance(config, PipelineConfig):
            document = configuration.expanded({**(config or {}), **options}, "Pipeline(…)")
            config = configuration.parse(document, where="Pipeline(…)", base=Path.cwd())
        elif options:
            raise TypeError("give a configuration or options, not both")
        self.config: PipelineConfig = config
        self._path = path
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._has_run = False
        self.exits = False
        """Whether this process may exit to keep `stop_timeout`, because it only runs this pipeline."""
        self.end_screen: Callable[[], None] = lambda: None
        """Called before this process exits by force, to give the terminal back."""
        self.say_forced: Callable[[str], None] | None = None
        """Prints why this process exits by force. None: as a paragraph on standard error."""
        self.progress: Progress | None = None

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """A pipeline from its pipeline file."""
        return cls(configuration.load(path), path=Path(path).resolve())

    def stop(self) -> None:
        """Asks a running pipeline to end after the current epoch. Returns at once. May be called from a
        signal handler. One that has not run yet ends as soon as it runs; later runs are not concerned."""
        self._stopping.set()

    def signal(self, kind: str, data: dict[str, Any], *, signal_id: str | None = None) -> str:
        """Sends a signal (docs/signals.md) to the pipeline, in whatever process it runs. Returns the
        signal's id. Raises `ConfigError` if this is not a signal."""
        return send(self.config, kind, data, signal_id)

    def plan(self) -> Plan:
        """What the pipeline would do: tables, targets, types, chunks, time and risks. Starts nothing."""
        from penstock.runtime.outlook import plan

        return plan(self.config)

    def status(self) -> Status:
        """The document of `penstock status --json`, also of a run in another process. Raises `ConfigError`
        if the pipeline has never run."""
        return Status(describe(self.config))

    def history(self) -> list[dict[str, Any]]:
        """Every change of a definition, oldest first, and what the pipeline did about it."""
        ensure_run(self.config)
        with contextlib.closing(StateStore(self.config.state, read_only=True)) as state:
            return [change_json(change) for change in state.history()]

    def query(self, sql: str, *, limit: int = 1000) -> Rows:
        """The rows of a SELECT over the targets, as `penstock query` gives them, at most `limit`. It starts
        Spark for that, so it is refused while this process has a session of Spark."""
        from penstock.spark import query

        ensure_run(self.config)
        with contextlib.closing(StateStore(self.config.state, read_only=True)) as state:
            tables = [table for table, known in state.tables().items() if known.last_epoch > 0]
            names, rows = query.query(self.config, state.uuid, tables, sql, limit)
        return Rows(dict(zip(names, row, strict=True)) for row in rows)

    @overload
    def run(
        self,
        *,
        once: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        spark: Any = None,
        background: Literal[False] = False,
    ) -> Progress: ...

    @overload
    def run(
        self,
        *,
        once: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        spark: Any = None,
        background: Literal[True],
    ) -> Pipeline: ...

    def run(
        self,
        *,
        once: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        spark: Any = None,
        background: bool = False,
    ) -> Progress | Pipeline:
        """Runs the pipeline: see the class. `on_progress` is called about once a second."""
        if self._thread is not None and self._thread.is_alive():
            raise ConfigError("This pipeline runs in the background already.", hint="Call `stop()` first.")
        if self._has_run or background:
            self._stopping.clear()
        self._has_run = True
        if not background:
            return self._run(once=once, on_progress=on_progress, spark=spark)
        self._failure = None

        def work() -> None:
            try:
                self._run(once=once, on_progress=on_progress, spark=spark)
            except BaseException as error:  # `wait` raises it
                self._failure = error

        self._thread = threading.Thread(target=work, name="pipeline", daemon=True)
        self._thread.start()
        return self

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until a run in the background has ended, at most `seconds`. False: it still runs. Raises the
        error that ended it."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return True

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            self.wait()
        elif self._thread is not None:
            self._thread.join()

    def _run(self, *, once: bool, on_progress: Callable[[Progress], None] | None, spark: Any) -> Progress:
        config = self.config
        directory.make(config.state, "state")
        with contextlib.ExitStack() as stack:
            stack.enter_context(directory.held(config.state))
            stack.enter_context(end_noted(config.state))
            stack.enter_context(directory.disk_errors_explained())
            refuse_moved(config.state)
            forget_status(config.state)
            directory.close_to_others(config.state, "state", open_=config.open_paths)
            directory.make(config.state / "spark", "state")
            stack.callback(forget_status, config.state)
            ending = stack.enter_context(Ending(self._stopping, config.stop_timeout / 1000, exits=self.exits))
            ending.forced, ending.end_screen = partial(leave_by_force, config.state), self.end_screen
            ending.say = self.say_forced or ending.say
            config = stack.enter_context(configuration.with_lent_secrets(config))
            stack.enter_context(explained("The pipeline stopped", config.state))
            targets.check_paths(config)
            known = StateStore.exists(config.state)  # otherwise there are no signals yet
            opened = partial(StateStore, config.state, owner=True)
            state = stack.enter_context(contextlib.closing(opened())) if known else None
            source = open_source(config, foreign_keys=config.cascades == "apply")
            stack.callback(source.close)
            ending.interrupt = source.interrupt
            step("checking the source")
            findings = source.preflight.check(with_signals(config, state) if state is not None else config)
            refuse(findings)
            for finding in findings:
                if finding.level == "warning":
                    log.warning("%s", finding.message)
            state = state or stack.enter_context(contextlib.closing(opened()))
            state.limit_signals(config.signals)
            stack.enter_context(targets.locked(config, state.uuid))
            targets.check_relay_log(LogPlace.of(config), state)
            source.preflight.check_start()  # before Spark is started in parallel with the receiver
            http = stack.enter_context(_serving(config, state))
            step("starting the receiver and Spark")
            started = Started.start(
                config, state, source, self._receiver_file(), findings, stopping=self._stopping, until=stack
            )
            parts = stack.enter_context(contextlib.ExitStack())
            stack.callback(started.receiver.ask_to_stop)  # so that it ends while the parts do
            stack.push(ending.begin_on_error)
            run = open_run(started, ending, parts, once=once, http=http, on_progress=on_progress, spark=spark)
            forget_end(config.state)
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


def _serving(config: PipelineConfig, state: StateStore) -> contextlib.AbstractContextManager[str | None]:
    """Answers HTTP while the block lasts, if the file has `http`. Yields the address."""
    if config.http is None:
        return contextlib.nullcontext()
    check_packages("http")
    from penstock.runtime.http import serving  # a web server is slow to import

    return serving(config.http, state)
