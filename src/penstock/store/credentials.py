"""How a store finds its credentials, and why they are in no log, plan, state or pickle.

A store does not have credentials, it has a *reference* that says where to find them. Each process that uses
the store resolves the reference by itself, when it needs them:

| reference | resolved from | on an executor |
|---|---|---|
| `Ambient` | what the ecosystem has: environment, profiles, roles | its own environment or role |
| `KeysFromEnvironment` | environment variables of other names | its own variables |
| `KeysFromFile` | a JSON file for this account alone, or a mounted secret | the same path there |
| `VendedKeys` | a function, usually of a catalog, called again before they end | refused, see below |
| `GivenKeys` | the pipeline file (`${NAME}`), in memory | refused, see below |

**What an executor needs.** A task gets a pickle of the store: URL, options and the reference. What Spark
carries for us lies in places nobody thinks of: serialised tasks in files of driver and block managers,
properties in the event log and on the web page. So the first three travel, because they contain no secret,
and the last two raise `InternalError` when they are pickled. `lent` turns keys that are in memory into
`KeysFromFile`: it writes them into a file of the state directory, mode 0600, for as long as the run lasts.
That is right where executors see that directory: on one machine, or on a shared file system. On a cluster
without one, executors have roles (`Ambient`), mounted secrets (`KeysFromFile`), or variables that Spark sets
for their processes (`KeysFromEnvironment`, `config/store_section.py`).

A file is read again for each new set of keys, so the driver renews vended keys for executors by writing the
file again (`LentKeys.renew`).
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol

from penstock.disk.replace import replace_file
from penstock.errors import InternalError
from penstock.store.errors import StoreRefused

HIDDEN = "**********"
RENEW_BEFORE = timedelta(minutes=5)
"""Keys are renewed this long before they end: longer than a request with all its retries may take."""
FILE_LIFE = timedelta(minutes=10)
"""Keys from a file count as ending after this time, so that they are read again before."""


class Keys:
    """A set of credentials, as S3 has them. Shows itself nowhere, and refuses to be pickled or copied.

    For Azure, `key_id` is the account and `secret` its access key. For Google, `secret` is a bearer token.
    """

    __slots__ = ("_secret", "_token", "ends", "key_id")

    def __init__(self, key_id: str, secret: str, *, token: str = "", ends: datetime | None = None) -> None:
        """`ends`: when they stop working, with a time zone. None: never."""
        self.key_id = key_id
        self._secret = secret
        self._token = token
        self.ends = ends

    def reveal(self) -> tuple[str, str, str]:
        """Key id, secret, session token (may be empty)."""
        return self.key_id, self._secret, self._token

    def renew_at(self) -> datetime | None:
        """When to ask for the next ones: `RENEW_BEFORE` their end, or halfway if that is later."""
        if self.ends is None:
            return None
        return self.ends - min(RENEW_BEFORE, (self.ends - datetime.now(timezone.utc)) / 2)

    def __repr__(self) -> str:
        return f"Keys({HIDDEN!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise InternalError("Credentials of a store were to be pickled (see `penstock.store.credentials`).")


class Credentials(Protocol):
    """A reference to credentials."""

    def keys(self) -> Keys | None:
        """The keys to use from now on. None: the library below looks in the places of its ecosystem.
        Raises `StoreRefused` if there are none."""


@dataclass(frozen=True)
class Ambient:
    """What the ecosystem has. `profile`: of AWS's shared files; empty: `AWS_PROFILE`, else `default`."""

    profile: str = ""

    def keys(self) -> Keys | None:
        return None


@dataclass(frozen=True)
class KeysFromEnvironment:
    """Names of environment variables, which are read anew each time."""

    key_id: str
    secret: str
    token: str = ""

    def keys(self) -> Keys | None:
        for name in (self.key_id, self.secret):
            if not os.environ.get(name):
                raise StoreRefused(
                    f"The credentials of a store are in the environment variable {name}, which is not set.",
                    hint="Set it for the driver, and for each executor.",
                )
        token = os.environ.get(self.token, "") if self.token else ""
        return Keys(os.environ[self.key_id], os.environ[self.secret], token=token)


@dataclass(frozen=True)
class KeysFromFile:
    """A JSON object `{"key_id", "secret", "token", "ends"}`; the last two are optional."""

    path: Path

    def keys(self) -> Keys | None:
        try:
            found = json.loads(self.path.read_bytes())
            ends = datetime.fromisoformat(found["ends"]) if found.get("ends") else None
            end_of_reading = datetime.now(timezone.utc) + FILE_LIFE
            return Keys(
                found["key_id"], found["secret"], token=found.get("token", ""),
                ends=end_of_reading if ends is None else min(ends, end_of_reading),
            )  # fmt: skip
        except OSError as error:
            reason = error.strerror or "unknown"
        except (ValueError, KeyError, TypeError, AttributeError):
            reason = "it is no JSON object with `key_id` and `secret`"
        raise StoreRefused(
            f"The credentials of a store cannot be read from {self.path}: {reason}.",
            hint="On a cluster, each executor needs the file at the same path, readable for its account.",
        )


@dataclass(frozen=True)
class GivenKeys:
    """Keys that are in memory, from the pipeline file."""

    _keys: Keys = field(repr=False)

    def keys(self) -> Keys | None:
        return self._keys


@dataclass(frozen=True)
class VendedKeys:
    """Keys that somebody hands out for a time: `vend` is called for the first ones, and again before they
    end. It may be called by any thread."""

    vend: Callable[[], Keys] = field(repr=False)

    def keys(self) -> Keys | None:
        return self.vend()

    def __reduce__(self) -> tuple[Any, ...]:
        raise InternalError("Vended credentials were to be pickled (see `penstock.store.credentials`).")


class LentKeys:
    """Keys that lie in a file, so that other processes of this account can use them."""

    def __init__(self, path: Path) -> None:
        self.reference = KeysFromFile(path)

    def renew(self, keys: Keys) -> None:
        """Readers see the old keys or the new ones, never a part. The file has mode 0600."""
        key_id, secret, token = keys.reveal()
        ends = None if keys.ends is None else keys.ends.isoformat()
        text = json.dumps({"key_id": key_id, "secret": secret, "token": token, "ends": ends})
        replace_file(self.reference.path, text.encode(), durable=False)


@contextlib.contextmanager
def lent(keys: Keys, folder: Path) -> Iterator[LentKeys]:
    """Puts keys into a file of `folder` while the block lasts. The folder is closed to other accounts."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    lending = LentKeys((folder / f"store-{uuid.uuid4().hex}").absolute())
    lending.renew(keys)
    try:
        yield lending
    finally:
        lending.reference.path.unlink(missing_ok=True)
