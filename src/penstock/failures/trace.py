"""Parses stack traces of Java and Python. Pure.

Spark reports a failure as text: a Java exception with its causes, which may include the traceback of a Python
worker. `causes` returns the chain, `decisive` its most informative link, and `without_traces` the text
without stack frames. Messages may contain row values: a failed cast names the value. So this module does not
decide whether a message may be shown; the caller knows whether rows were being processed."""

from __future__ import annotations

import re
from dataclasses import dataclass

TEXT_MAX = 256 * 1024
"""Maximum length of a text that is parsed, in characters. A longer stack trace repeats itself."""
MESSAGE_MAX = 400
"""Maximum length of the message of one cause, in characters, so that errors stay readable."""


@dataclass(frozen=True)
class Cause:
    """One link of the chain: the exception's full class name, and the first paragraph of its message on one
    line."""

    kind: str
    message: str

    @property
    def name(self) -> str:
        """Name of the class without its package, such as `ClassNotFoundException`."""
        return re.split(r"[.$]", self.kind)[-1]

    @property
    def condition(self) -> str:
        """Spark's own name of the error, such as CAST_INVALID_INPUT; empty if it has none."""
        match = re.match(r"\[([A-Z][A-Z0-9_.]*)\]", self.message)
        return match[1] if match else ""


_KIND = r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*"
_THROWN = re.compile(rf"^(?:Caused by: |: |Exception in thread \"[^\"\n]*\" )({_KIND})(?::[ ]?(.*)|\((.*))?$")
_PLAIN = re.compile(rf"^({_KIND}(?:Exception|Error|Interrupt|Exit|Warning))(?::[ ]?(.*))?$")
_TASK = re.compile(rf"most recent failure: Lost task [^\n]*?\): ({_KIND})(?::[ ]?(.*))?$")
_FRAME = re.compile(
    r"^\s+(?:at .*|\.\.\. \d+ (?:more|common frames omitted).*)$|^Driver stacktrace:$|^\s*JVM stacktrace:$"
)
_PYTHON = re.compile(r"^(?:.*: )?Traceback \(most recent call last\):$")
_BETWEEN = (
    "During handling of the above exception",
    "The above exception was the direct cause",
    "An exception was thrown from the Python worker",
)
_WRAPPERS = {
    "InvocationTargetException",
    "UndeclaredThrowableException",
    "ExecutionException",
    "CompletionException",
    "PythonException",
    "Py4JJavaError",
    "Py4JError",
}
"""Exceptions that only wrap another one."""


def causes(text: str) -> list[Cause]:
    """Returns the chain of causes, outermost first: Java's "Caused by", the failed task, and what a Python
    worker raised."""
    found: list[Cause] = []
    lines = text[:TEXT_MAX].splitlines()
    in_python = False
    for place, line in enumerate(lines):
        if task := _TASK.search(line):
            found.append(_cause(task[1], task[2], lines, place))
            in_python = bool(_PYTHON.match(task[2] or ""))
        elif thrown := _THROWN.match(line):
            message = f"({thrown[3]}" if thrown[3] is not None else thrown[2]
            found.append(_cause(thrown[1], message, lines, place))
            in_python = bool(_PYTHON.match(thrown[2] or ""))
        elif _PYTHON.match(line):
            in_python = True
        elif in_python and line and not line[0].isspace() and (raised := _PLAIN.match(line)):
            found.append(_cause(raised[1], raised[2], lines, place))
            in_python = False
        elif not found and (plain := _PLAIN.match(line)):
            found.append(_cause(plain[1], plain[2], lines, place))
    return found


def decisive(text: str) -> Cause | None:
    """Returns the innermost cause that has a message, which usually names what has to be fixed. Exceptions
    that only wrap another one are skipped. None if there is no cause."""
    chain = [cause for cause in causes(text) if cause.name not in _WRAPPERS]
    spoken = [cause for cause in chain if cause.message]
    return spoken[-1] if spoken else chain[-1] if chain else None


def without_traces(text: str) -> str:
    """Returns the text on one line, without the lines of stack traces. Empty only if `text` is empty."""
    kept: list[str] = []
    in_python = False
    for line in text[:TEXT_MAX].splitlines():
        stripped = line.strip()
        if _PYTHON.match(line):
            in_python = True
        elif in_python and (line[:1].isspace() or not stripped):
            continue
        elif not _FRAME.match(line) and stripped and not stripped.startswith(_BETWEEN):
            in_python = False
            kept.append(stripped)
    return " ".join(" ".join(kept).split()) or " ".join(text[:MESSAGE_MAX].split())


def _cause(kind: str, message: str | None, lines: list[str], place: int) -> Cause:
    """Returns a cause with all lines of its message, up to an empty line or the first stack frame."""
    said = [message or ""]
    if _PYTHON.match(said[0]):
        return Cause(kind, "")
    for line in lines[place + 1 : place + 20]:
        if not line.strip() or _FRAME.match(line) or _THROWN.match(line) or _PYTHON.match(line):
            break
        said.append(line)
    return Cause(kind, " ".join(" ".join(said).split())[:MESSAGE_MAX])
