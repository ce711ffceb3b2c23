"""The section `store` of the pipeline file: how object stores are reached where the environment does not
say it.

**Credentials on their way to tasks.** A store that is opened by a configuration whose secrets were lent
(`config.with_lent_secrets`) may be pickled: it has a reference to its keys, never the keys
(`store/credentials.py`). On one machine that is a file of the state directory. Executors of other machines
do not see that directory, so there it is the name of environment variables, which the driver sets for itself
and passes to the executors' processes (`spark/session.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import PrivateAttr

from penstock.secret import Secret, variable_of
from penstock.store.base import Store
from penstock.store.credentials import (
    Ambient,
    Credentials,
    GivenKeys,
    KeysFromEnvironment,
    lent,
)
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions
from penstock.store.section import StoreSection

_KEYS = ("access_key_id", "secret_access_key", "session_token")


class StoreConfig(StoreSection):
    """How to reach object stores (`staging`) where the environment does not say it. Everything is optional:
    without it, Penstock finds credentials and region as other programs do, in the environment, AWS's shared
    files or the role of the machine. The tables of the sink have settings of their own (`sink.catalog`,
    `sink.store`)."""

    _lent: Credentials | None = PrivateAttr(None)

    @property
    def options(self) -> StoreOptions:
        return StoreOptions(
            self._credentials(),
            endpoint=self.endpoint or "",
            region=self.region or "",
            path_style=self.path_style,
        )

    def open(self, url: str) -> Store:
        """The store at a URL. It may be pickled if the configuration is one whose secrets were lent. Makes no
        request. Raises `StoreRefused` for a URL that is none of a store."""
        return open_store(url, self.options)

    def variables(self) -> dict[str, Secret]:
        """The environment variables that have the keys on a cluster."""
        keys = {variable_of("store", name): getattr(self, name) for name in _KEYS}
        return {name: one for name, one in keys.items() if one}

    @contextlib.contextmanager
    def lent(self, state: Path, *, one_machine: bool) -> Iterator[StoreConfig]:
        """This section, in a form whose stores may be pickled while the block lasts."""
        if not self.has_keys:
            yield self
        elif one_machine:
            with lent(self.keys(), state / "secrets") as lending:
                yield self._with(lending.reference)
        else:
            yield self._with(KeysFromEnvironment(*(variable_of("store", name) for name in _KEYS)))

    def _with(self, reference: Credentials) -> StoreConfig:
        copy = self.model_copy()
        copy._lent = reference
        return copy

    def _credentials(self) -> Credentials:
        if self._lent is not None:
            return self._lent
        return GivenKeys(self.keys()) if self.has_keys else Ambient(self.profile or "")


@contextlib.contextmanager
def set_in_environment(variables: dict[str, Secret]) -> Iterator[None]:
    """Sets environment variables of this process while the block lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value.reveal() for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
