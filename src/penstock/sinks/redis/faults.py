"""Errors of the server and of the client, as Penstock's: who acts, and what to do."""

from __future__ import annotations

from redis import exceptions

from penstock.connections.answers import STRANGE
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.refusals import refusal

CODES = Codes(
    "https://redis.io/docs/latest/develop/reference/protocol-spec/ and, as codes are listed nowhere, "
    "src/server.c and src/cluster.c of the server",
    outage=frozenset({
        "",  # no answer, or one that no server gives
        "LOADING", "BUSY", "BUSYKEY", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS",
        "NOGOODSLAVE", "MISCONF", "OOM", "UNKILLABLE", "NOTREADY", "max number of clients", "NOMASTERLINK",
        "INPROG", "IOERR", "REDIRECT", "UNBLOCKED", "EXECABORT", "NOQUORUM",
    }),
    configuration=frozenset({
        "NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "NOPROTO", "invalid password", "CROSSSLOT", "MOVED", "ASK",
    }),
)  # fmt: skip
"""By the first word of an error, which is its code, or by the text of one without."""
_CLASSES: dict[type[Exception], str] = {
    exceptions.AuthenticationError: "WRONGPASS",
    exceptions.AuthorizationError: "NOPERM",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MaxConnectionsError: "max number of clients",
    exceptions.ConnectionError: "",
    exceptions.TimeoutError: "",
    exceptions.NoScriptError: "",
    exceptions.InvalidResponse: "",
}
"""Classes of the client, which leaves the codes out of its texts."""


def _code(error: exceptions.RedisError) -> str:
    for kind in type(error).__mro__:
        if kind in _CLASSES:
            return _CLASSES[kind]
    text = str(error)
    if " OOM " in f" {text} ":  # inside a script, older servers say it in the middle
        return "OOM"
    known = (str(one) for one in CODES.outage if one)
    return next((one for one in known if text.startswith(one)), text.split(" ")[0].strip("-"))


def explained(error: exceptions.RedisError, what: str, table: TableId | None) -> PenstockError:
    """The error without values of rows. `what` begins the message."""
    code = _code(error)
    verdict = CODES.verdict(code)
    if code in ("CROSSSLOT", "MOVED", "ASK"):
        return ConfigError(f"{what}: this is a Redis Cluster.", hint="Use a server without cluster mode.")
    if verdict is Verdict.CONFIGURATION:
        kind, details = refusal(table, of_table=code == "NOPERM")
        return kind(
            f"{what}: the server refuses this account ({code}).",
            hint="Check `sink.user` and `sink.password`. The account needs EVALSHA, SCAN, INFO and commands "
            "of hashes, strings and sets on the keys of its tables and on `penstock:*`.",
            **details,
        )
    if code == "OOM":
        return TransientError(
            f"{what}: the memory of the server is full.", hint="Raise its maxmemory. It is tried again."
        )
    if verdict is Verdict.OUTAGE:
        lost = STRANGE if isinstance(error, exceptions.InvalidResponse) else "the server does not answer"
        return TransientError(f"{what}: {code or lost}.", hint="It is tried again until the server takes it.")
    if not code.isupper():  # a message of our scripts or of a command, which has no code
        code = str(error).partition(":")[0]
    if table is not None:
        return TableError(
            f"{what}: the server refuses it ({code}).",
            hint="Has another program written to keys of this table? Remove them, then run "
            f"`penstock unpark FILE {argument(table)}`.",
            table=str(table),
        )
    return ConfigError(f"{what}: the server refuses it ({code}).", hint="Check the section `sink`.")
