"""Converts any exception into one of `penstock.errors`: one sentence, a hint, and the file with the stack
trace."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from penstock.errors import (
    ConfigError,
    DriverReplaced,
    GrantMissing,
    InternalError,
    PenstockError,
    SparkFailed,
    TableError,
)
from penstock.failures import error_log
from penstock.failures.advice import Advice, advise, advise_log, concerns_one_table, without_secrets
from penstock.failures.trace import causes, without_traces
from penstock.printable import argument

LOG_TAIL_BYTES = 64 * 1024
"""Bytes that are read from the end of a log: enough for the last stack traces."""

_FOREIGN = ("py4j", "pyspark")


def is_sparks(error: BaseException) -> bool:
    """Whether pyspark or py4j raised it. Does not import pyspark."""
    return any(kind.__module__.split(".")[0] in _FOREIGN for kind in type(error).__mro__)


def text_of(error: BaseException) -> str:
    """Returns the text of an error, with Java's stack trace if there is one."""
    try:
        said = getattr(error, "_desc", None)  # `str` of PySpark's error would ask the JVM for an option
        text = said if isinstance(said, str) else str(error)
    except Exception:  # `str` of py4j's error asks the JVM, which may be gone
        text = ""
    java = getattr(error, "_stackTrace", None)
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    said = text if not java or java in text else f"{java}\n{text}"
    return said if causes(said) else f"{name}: {said}"


@contextmanager
def explained(doing: str, state: Path, *, rows: bool = True) -> Iterator[None]:
    """Converts errors that the block raises. Spark's errors, and a lost connection to the JVM, become
    `SparkFailed`; unexpected errors become `InternalError`. Our own errors and those of the operating system
    pass unchanged. `doing` begins the message and says what failed. `rows`: see `advise`."""
    try:
        yield
    except ConnectionError as error:  # py4j raises it when the JVM is gone
        logs = tail(state / "logs" / "spark.stderr")
        raise spark_failed(error, doing, state, rows=rows, logs=logs) from error
    except (PenstockError, OSError):
        raise
    except Exception as error:
        raise as_penstock_error(error, state, doing=doing, rows=rows) from error


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else f"{type(error).__name__}."


def one_sentence(error: BaseException) -> str:
    """Returns one sentence about an error for log lines, without row values."""
    if isinstance(error, PenstockError):
        return error.message
    found = advise(text_of(error), rows=True)
    return found.message if found is not None else f"{type(error).__name__}."


def is_lasting(error: BaseException) -> bool:
    """Whether a retry cannot succeed. Our own errors count as lasting: they were retried where they were
    raised."""
    if isinstance(error, PenstockError):
        return not isinstance(error, SparkFailed)
    found = advise(text_of(error), rows=True) if is_sparks(error) else None
    return found is not None and found.lasting


def of_one_table(
    error: BaseException, table: str, state: Path | None, *, shown: str | None = None
) -> TableError | None:
    """The error as one of this table: of its definition, of a statement for it, or of our code with it. No
    retry mends it, and other tables need not have it. None: it may pass, or concern more than this table (a
    store, the network, memory, the class path). `state`: the directory of `errors.log`. `shown`: see
    `at_source`."""
    if isinstance(error, PenstockError):
        error = at_source(error, shown or table, table)
    if isinstance(error, TableError):
        return error
    if isinstance(error, ConfigError) and not isinstance(error, DriverReplaced | GrantMissing):
        own = error.details.get("table") == table
        return TableError(error.message, hint=error.hint, table=table) if own else None
    if isinstance(error, PenstockError | OSError):
        return None
    text = text_of(error)
    if is_sparks(error):
        if not concerns_one_table(text):
            return None
    elif not isinstance(error, _OF_VALUES):
        return None
    return parked_for(
        as_penstock_error(error, state, doing=f"The target of {table} cannot be changed"), table
    )


Ours = TypeVar("Ours", bound=PenstockError)


def at_source(error: Ours, shown: str, table: str) -> Ours:
    """The error of a sink that knows the table by its name at the target (`shown`). Commands in the hint name
    it as the source does."""
    if shown == table:
        return error
    pattern = rf"(`penstock [^`]*)(?<=\s){re.escape(argument(shown))}(?=[\s`])"
    hint = re.sub(pattern, lambda found: found[1] + argument(table), error.hint)
    about = {"table": table} if error.details.get("table") == shown else {}
    return type(error)(error.message, hint=hint, **{**error.details, **about})


def parked_for(error: PenstockError, table: str) -> TableError:
    """The error of a table that is parked because of `error`."""
    again = f"Then run `penstock unpark FILE {argument(table)}`."
    return TableError(error.message, hint=f"{error.hint} {again}".strip(), table=table)


def as_table_error(error: PenstockError, table: str) -> TableError:
    if isinstance(error, TableError):
        return error
    return TableError(error.message, hint=error.hint, table=table)


_OF_VALUES = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError,
              NotImplementedError, RecursionError)  # fmt: skip
"""Errors of Python that depend on what was computed, and not on where."""


def tail(path: Path, *, start: int = 0) -> str:
    """Returns the end of a log file, at most `LOG_TAIL_BYTES` and not before byte `start`. A file shorter
    than `start` was replaced and is read from its beginning. Empty if the file cannot be read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(start, size - LOG_TAIL_BYTES) if start <= size else 0)
            return file.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def spark_failed(
    error: BaseException, doing: str, state: Path | None, *, rows: bool, logs: str = ""
) -> SparkFailed:
    """Returns a `SparkFailed` for an error, and writes its stack trace to `errors.log`. `doing` begins the
    message and says what failed. `logs` is the end of Spark's own log, for errors that say only that the JVM
    has exited. `rows`: see `advise`."""
    text = text_of(error)
    found = advice_of(text, logs, rows=rows)
    kept = error_log.keep(error, state, more=logs)
    said = found.message if found is not None else without_secrets(without_traces(text))[:300]
    hint = found.hint if found is not None else ""
    log = {"log": str(kept)} if kept is not None else {}
    return SparkFailed(f"{doing}: {said}", hint=f"{hint} {_details(kept)}".strip(), **log)


def advice_of(text: str, logs: str = "", *, rows: bool) -> Advice | None:
    """Returns the advice for the error's text or, if that has no hint, for the logs."""
    own = advise(text, rows=rows)
    if logs and (own is None or not own.hint):
        return advise_log(logs) or own
    return own


def as_penstock_error(
    error: BaseException, state: Path | None, *, doing: str = "Spark failed", rows: bool = True
) -> PenstockError:
    """Converts any exception into one of our errors. An unexpected one is a bug: its text may contain row
    values, so it is written only to the file."""
    if isinstance(error, PenstockError):
        return _with_details(error, state)
    if is_sparks(error):
        logs = tail(state / "logs" / "spark.stderr") if state is not None else ""
        return spark_failed(error, doing, state, rows=rows, logs=logs)
    kept = error_log.keep(error, state)
    if isinstance(error, OSError) and error.errno is not None:
        name = f" ({error.filename})" if isinstance(error.filename, str) else ""
        return PenstockError(
            f"The operating system reported an error{name}: {os.strerror(error.errno)}.",
            hint=f"{_OS_CURES.get(error.errno, '')} {_details(kept)}".strip(),
        )
    if isinstance(error, MemoryError):
        return PenstockError(
            "The process ran out of memory.", hint=f"Give the process more memory. {_details(kept)}".strip()
        )
    return InternalError(
        f"This is a bug in Penstock: {type(error).__name__} {_place(error)}.",
        hint=f"Nothing is lost: run the same command again to continue. Please report the bug. "
        f"{_details(kept)}".strip(),
    )


_OS_CURES = {
    errno.ENOSPC: "Free space on the disk.",
    errno.EDQUOT: "The disk quota is used up: free space or raise it.",
    errno.EROFS: "The file system is read-only: mount it writable.",
    errno.EACCES: "Grant this account access to it.",
    errno.EPERM: "Grant this account access to it.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Raise the system's limit of open files.",
    errno.ENOMEM: "Give the process more memory.",
    errno.EAGAIN: "Raise the limit of processes (ulimit -u).",
    errno.EIO: "The disk or the file system is damaged: check the system log.",
}


def _with_details(error: PenstockError, state: Path | None) -> PenstockError:
    """Writes the stack trace to `errors.log` if an error of Spark caused `error`, and names the file in the
    hint. Returns `error`."""
    cause = error.__cause__
    if cause is not None and is_sparks(cause) and "log" not in error.details:
        kept = error_log.keep(error, state)
        if kept is not None:
            error.hint = f"{error.hint} {_details(kept)}".strip()
            error.details["log"] = str(kept)
    return error


def _details(kept: Path | None) -> str:
    return f"Details are in {kept}." if kept is not None else ""


def _place(error: BaseException) -> str:
    """Returns the innermost line of our own code in the traceback, as text."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "penstock" in Path(frame.filename).parts]
    if not ours:
        return "outside its own code"
    parts = Path(ours[-1].filename).parts
    start = len(parts) - 1 - parts[::-1].index("penstock")
    return f"in {'/'.join(parts[start:])}, line {ours[-1].lineno}"
