"""AWS's shared files, `~/.aws/credentials` and `~/.aws/config`, which the library below does not read.

Profiles with keys are read here. Profiles that must ask somebody for keys (a role, single sign-on, a
program) are left to boto3, if it is installed.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from penstock.store.credentials import FILE_LIFE, Keys
from penstock.store.errors import StoreRefused

_FIRST = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Variables that count before the files, as in AWS's own programs."""
_ASKING = ("role_arn", "sso_session", "sso_start_url", "credential_process", "login_session")


@dataclass(frozen=True)
class ProfileKeys:
    """The keys of a profile. They are read again when the old ones may have ended, since other programs
    renew these files."""

    name: str

    @classmethod
    def of(cls, name: str) -> ProfileKeys | None:
        """The keys of a profile. `name`: empty for `AWS_PROFILE`, else `default`. None if the credentials are
        elsewhere. Raises `StoreRefused` if a profile was named that does not exist."""
        if not name and any(os.environ.get(variable) for variable in _FIRST):
            return None
        named = name or os.environ.get("AWS_PROFILE", "")
        found = _profile(named or "default")
        if not found and named:
            raise StoreRefused(
                f"The profile {named} is in neither of AWS's shared files.",
                hint="Add it (`aws configure --profile NAME`), or choose another one.",
            )
        if "aws_access_key_id" not in found and not any(option in found for option in _ASKING):
            return None
        return cls(named or "default")

    def keys(self) -> Keys | None:
        found = _profile(self.name)
        again = datetime.now(timezone.utc) + FILE_LIFE
        if "aws_access_key_id" in found:
            return Keys(
                found["aws_access_key_id"], found.get("aws_secret_access_key", ""),
                token=found.get("aws_session_token", ""), ends=again,
            )  # fmt: skip
        return _asked(self.name, again)


def region(name: str) -> str:
    """The region of a profile, which may have no more than that; empty if it has none."""
    return _profile(name or os.environ.get("AWS_PROFILE") or "default").get("region", "")


def _asked(name: str, again: datetime) -> Keys:
    try:
        import boto3
    except ImportError:
        raise StoreRefused(
            f"The profile {name} needs a role, single sign-on or a program, which only boto3 can use.",
            hint="Run `pip install boto3`, or use a profile with keys.",
        ) from None
    session: Any = boto3.Session(profile_name=name)
    found = session.get_credentials()
    if found is None:
        raise StoreRefused(
            f"The profile {name} gives no credentials.", hint="Try `aws sts get-caller-identity`."
        )
    frozen = found.get_frozen_credentials()
    return Keys(frozen.access_key, frozen.secret_key, token=frozen.token or "", ends=again)


def _profile(name: str) -> dict[str, str]:
    """The options of a profile in both files; those of the credentials file count first."""
    config = _read("AWS_CONFIG_FILE", "config")
    found = config.get("default" if name == "default" else f"profile {name}", {})
    return {**found, **_read("AWS_SHARED_CREDENTIALS_FILE", "credentials").get(name, {})}


def _read(variable: str, file: str) -> dict[str, dict[str, str]]:
    path = Path(os.environ.get(variable) or Path.home() / ".aws" / file).expanduser()
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, configparser.Error, UnicodeDecodeError):  # their texts may hold a line of the file
        raise StoreRefused(f"AWS's shared file {path} cannot be read.", hint="Correct it.") from None
    return {section: dict(parser[section]) for section in parser.sections()}
