"""Errors of the server and of the client, as Penstock's: who acts, and what to do."""

from __future__ import annotations

from redis import exceptions

from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument

_PASSING = ("LOADING", "BUSY", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF")


def explained(error: exceptions.RedisError, what: str, table: TableId | None) -> PenstockError:
    """The error without values of rows. `what` begins the message."""
    code = str(error).split(" ")[0].strip("-")
    if isinstance(error, exceptions.AuthenticationError) or code in ("NOAUTH", "WRONGPASS", "NOPERM"):
        return ConfigError(
            f"{what}: the server refuses this account ({code}).",
            hint="Check `sink.user` and `sink.password`. The account needs EVALSHA, SCAN, INFO and commands "
            "of hashes, strings and sets on the keys of its tables and on `penstock:*`.",
        )
    if code in ("OOM", "command") or "OOM" in str(error):
        return TransientError(
            f"{what}: the memory of the server is full.", hint="Raise its maxmemory. It is tried again."
        )
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError)) or code in _PASSING:
        return TransientError(
            f"{what}: {code if code in _PASSING else 'the server does not answer'}.",
            hint="It is tried again until the server answers.",
        )
    if code == "CROSSSLOT":
        return ConfigError(f"{what}: this is a Redis Cluster.", hint="Use a server without cluster mode.")
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
