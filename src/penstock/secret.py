"""A password that cannot be shown by accident.

`repr`, `str`, formatting and JSON show asterisks. Only `reveal` returns the text, so all places that use it
can be found by that name. The file that `config.save` writes is the one exception: it asks pydantic for the
texts with the context `REVEALED`.

**How it reaches Spark tasks.** A task that reads a chunk needs the password to connect. But Spark stores
what it carries in many places: serialised tasks are in files of the driver and of block managers, and job
properties, `spark.conf` and executor environments are in the event log and on the web page. So a `Secret`
refuses to be pickled, unless it was lent (`lent`). Then it is in a file of the state directory that only
this account can read (mode 0600, in a directory with mode 0700), and the pickle has only the file's path.
The file exists as long as the run. A killed run leaves it behind, beside the pipeline file that may contain
the same password. The next run replaces it.

Executors of other machines do not see that directory. On a cluster the pickle has the name of an environment
variable instead (`by_variable`), which Spark sets for the processes of its executors, and which no task
carries (`spark/session.py`). The names contain SECRET, so that Spark hides their values in its event log and
on its web page.

**Passwords that are changed.** A pipeline file may name a file in place of the text (`{file: PATH}`).
`reveal` reads it each time, so the next login has the new password.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from penstock.errors import InternalError, TransientError

HIDDEN = "**********"
REVEALED = "penstock.secret.revealed"
"""Key of `model_dump`'s context with which secrets are dumped as their texts."""


class Secret:
    """A text that only `reveal` shows. Two secrets are equal if their texts are."""

    __slots__ = ("_file", "_kept", "_text", "_variable")

    def __init__(
        self, text: str = "", *, file: Path | None = None, variable: str = "", kept: Path | None = None
    ) -> None:
        """`file` or `variable` (of the environment): where processes that unpickle the secret find the
        text. `kept`: a file of the operator, who may change it at any time."""
        self._text: str | None = text if text or (file is None and not variable) else None
        self._file = file
        self._variable = variable
        self._kept = kept

    @property
    def is_kept(self) -> bool:
        """Whether each login must ask for the text again, because it is in a file of the operator."""
        return self._kept is not None

    def reveal(self) -> str:
        """The text. Raises `TransientError` if it cannot be read."""
        if self._kept is not None:
            return self._from_operator(self._kept)
        if self._text is None:
            self._text = self._borrowed()
        return self._text

    def _borrowed(self) -> str:
        if self._variable:
            return self._from_environment()
        assert self._file is not None
        try:
            return self._file.read_text("utf-8")
        except OSError as error:
            raise TransientError(
                f"The password cannot be read from {self._file}: {error.strerror}.",
                hint="The file lives as long as its pipeline runs. On a cluster, `state` must be on a file "
                "system that driver and executors share.",
            ) from error

    @staticmethod
    def _from_operator(path: Path) -> str:
        try:
            return path.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise TransientError(
                f"The file {path}, which has a password, cannot be read: {why}.",
                hint="Write the password there, readable for the account that runs Penstock.",
            ) from None

    def _from_environment(self) -> str:
        if text := os.environ.get(self._variable):
            return text
        raise TransientError(
            f"The environment variable {self._variable}, which has a password, is not set in this process.",
            hint="Spark sets it for its executors (spark.executorEnv). Check that the cluster passes it on.",
        )

    def __bool__(self) -> bool:
        return self.is_kept or bool(self.reveal())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Secret) and (self.is_kept or other.is_kept):
            return self._kept == other._kept
        return isinstance(other, Secret) and self.reveal() == other.reveal()

    def __hash__(self) -> int:
        return hash(Secret)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN!r})"

    def __str__(self) -> str:
        return HIDDEN

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._kept is not None:
            return (_from_kept, (str(self._kept),))
        if self._file is not None:
            return (_from_file, (str(self._file),))
        if self._variable:
            return (_from_variable, (self._variable,))
        if not self.reveal():
            return (Secret, ())
        raise InternalError("A password was pickled without having been lent (`penstock.secret`).")

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._accept,
            serialization=core_schema.plain_serializer_function_ser_schema(
                _dumped, info_arg=True, when_used="json"
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        file = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
        return {"anyOf": [{"type": "string"}, {**file, "additionalProperties": False}]}

    @classmethod
    def _accept(cls, value: Any) -> Secret:
        if isinstance(value, cls):
            return value
        if isinstance(value, dict) and list(value) == ["file"] and isinstance(value["file"], str | Path):
            if not (path := Path(value["file"])).is_absolute():
                raise ValueError("the path after `file` must be absolute")
            return cls(kept=path)
        if not isinstance(value, str):
            raise ValueError("write it as a text, in quotes, or as `{file: PATH}`")
        return cls(value)


def _dumped(secret: Secret, info: SerializationInfo) -> str | dict[str, str]:
    if info.context != REVEALED:
        return str(secret)
    return secret.reveal() if secret._kept is None else {"file": str(secret._kept)}


def _from_kept(path: str) -> Secret:
    return Secret(kept=Path(path))


def _from_file(path: str) -> Secret:
    return Secret(file=Path(path))


def _from_variable(name: str) -> Secret:
    return Secret(variable=name)


def variable_of(section: str, option: str) -> str:
    """The environment variable that has a secret option of the pipeline file on executors."""
    return f"PENSTOCK_SECRET_{section}_{option}".upper()


def by_variable(secrets: Mapping[str, Secret], section: str) -> dict[str, Secret]:
    """The secrets in a form that can be pickled. Processes that unpickle them have the variables
    `variable_of`."""
    return {
        name: secret
        if secret.is_kept
        else Secret(secret.reveal(), variable=variable_of(section, name) if secret else "")
        for name, secret in secrets.items()
    }


@contextlib.contextmanager
def lent(secrets: Mapping[str, Secret], state: Path) -> Iterator[dict[str, Secret]]:
    """The secrets in a form that can be pickled while the block lasts."""
    lendable = {name: secret for name, secret in secrets.items() if secret and not secret.is_kept}
    if not lendable:
        yield dict(secrets)
        return
    folder = state / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    files = {name: (folder / uuid.uuid4().hex).absolute() for name in lendable}
    try:
        for name, file in files.items():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                out.write(secrets[name].reveal())
        yield {**secrets, **{name: Secret(secrets[name].reveal(), file=file) for name, file in files.items()}}
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)


def take_back(state: Path) -> None:
    """Removes the files of all secrets that were lent for this state."""
    with contextlib.suppress(FileNotFoundError):
        for file in (state / "secrets").iterdir():
            file.unlink(missing_ok=True)
