"""What a user is told about an exception that is not one of `penstock.errors`: one sentence, its cure, and
where the stack trace is."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import InternalError, PenstockError, SparkFailed
from penstock.failures import error_log
from penstock.failures.advice import Advice, advise, advise_log, without_secrets
from penstock.failures.trace import causes, without_traces

LOG_TAIL_BYTES = 64 * 1024

_FOREIGN = ("py4j", "pyspark")


def is_sparks(error: BaseException) -> bool:
    """Whether Spark, or what it runs on, raised it. Works without importing pyspark."""
    return any(kind.__module__.split(".")[0] in _FOREIGN for kind in type(error).__mro__)


def text_of(error: BaseException) -> str:
    """What is known of an error, with Java's stack trace if there is one."""
    try:
        said = getattr(error, "_desc", None)  # PySpark asks the JVM for an option before it shows an error
        text = said if isinstance(said, str) else str(error)
    except Exception:  # py4j asks the JVM, too, which may be gone
        text = ""
    java = getattr(error, "_stackTrace", None)
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    said = text if not java or java in text else f"{java}\n{text}"
    return said if causes(said) else f"{name}: {said}"


@contextmanager
def telling(doing: str, state: Path, *, rows: bool = True) -> Iterator[None]:
    """Errors of Spark leave the block as `SparkFailed`, bugs as `InternalError`; ours, and those of the
    operating system, as they are."""
    try:
        yield
    except ConnectionError as error:  # py4j's: the JVM is gone
        logs = tail(state / "logs" / "spark.stderr")
        raise spark_failed(error, doing, state, rows=rows, logs=logs) from error
    except (PenstockError, OSError):
        raise
    except Exception as error:
        raise told(error, state, doing=doing, rows=rows) from error


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else f"{type(error).__name__}."


def brief(error: BaseException) -> str:
    """One sentence for log lines, without row values."""
    if isinstance(error, PenstockError):
        return error.message
    found = advise(text_of(error), rows=True)
    return found.message if found is not None else f"{type(error).__name__}."


def is_lasting(error: BaseException) -> bool:
    """Whether trying again cannot help. Our own errors have been tried again where that may help."""
    if isinstance(error, PenstockError):
        return not isinstance(error, SparkFailed)
    found = advise(text_of(error), rows=True) if is_sparks(error) else None
    return found is not None and found.lasting


def tail(path: Path, *, start: int = 0) -> str:
    """The end of a log file, from `start` on; empty if there is none."""
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
    """`doing`: what could not be done, as the beginning of a sentence. `logs`: what Spark itself has written,
    for errors that say only that the JVM has gone."""
    text = text_of(error)
    found = advice_of(text, logs, rows=rows)
    kept = error_log.keep(error, state, more=logs)
    said = found.message if found is not None else without_secrets(without_traces(text))[:300]
    hint = found.hint if found is not None else ""
    log = {"log": str(kept)} if kept is not None else {}
    return SparkFailed(f"{doing}: {said}", hint=f"{hint} {_details(kept)}".strip(), **log)


def advice_of(text: str, logs: str = "", *, rows: bool) -> Advice | None:
    """What the logs tell is taken where the error itself says only that the JVM is gone, or nothing."""
    own = advise(text, rows=rows)
    if logs and (own is None or not own.hint):
        return advise_log(logs) or own
    return own


def told(
    error: BaseException, state: Path | None, *, doing: str = "Spark failed", rows: bool = True
) -> PenstockError:
    """One of our errors, for any exception. What nobody expected is a bug: its own text, which may hold row
    values, is kept in the file alone."""
    if isinstance(error, PenstockError):
        return _with_details(error, state)
    if is_sparks(error):
        logs = tail(state / "logs" / "spark.stderr") if state is not None else ""
        return spark_failed(error, doing, state, rows=rows, logs=logs)
    kept = error_log.keep(error, state)
    if isinstance(error, OSError) and error.errno is not None:
        name = f" ({error.filename})" if isinstance(error.filename, str) else ""
        return PenstockError(
            f"The operating system refused something that Penstock needs{name}: {os.strerror(error.errno)}.",
            hint=f"{_OS_CURES.get(error.errno, '')} {_details(kept)}".strip(),
        )
    if isinstance(error, MemoryError):
        return PenstockError(
            "The process ran out of memory.", hint=f"Give it more memory. {_details(kept)}".strip()
        )
    return InternalError(
        f"This is a bug in Penstock: {type(error).__name__} {_place(error)}.",
        hint=f"Nothing is lost: the same command goes on where this one stopped. Please report it. "
        f"{_details(kept)}".strip(),
    )


_OS_CURES = {
    errno.ENOSPC: "Make room on the disk.",
    errno.EDQUOT: "Make room: the quota is used up.",
    errno.EROFS: "The file system is read-only: mount it writable.",
    errno.EACCES: "Give this account the right to.",
    errno.EPERM: "Give this account the right to.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Raise the system's limit of open files.",
    errno.ENOMEM: "Give it more memory.",
    errno.EAGAIN: "Raise the limit of processes (ulimit -u).",
    errno.EIO: "The disk or the file system is damaged: see the system's log.",
}


def _with_details(error: PenstockError, state: Path | None) -> PenstockError:
    """An error of ours that was made of one of Spark's: the stack trace of that one is kept, too."""
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
    """The innermost line of our own code."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "penstock" in Path(frame.filename).parts]
    if not ours:
        return "outside its own code"
    parts = Path(ours[-1].filename).parts
    start = len(parts) - 1 - parts[::-1].index("penstock")
    return f"in {'/'.join(parts[start:])}, line {ours[-1].lineno}"
