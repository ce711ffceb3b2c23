"""A section of the pipeline file that says how object stores are reached where the environment does not."""

from __future__ import annotations

import re

from pydantic import field_validator, model_validator
from typing_extensions import Self

from penstock.model.section import Section
from penstock.secret import Secret
from penstock.store.credentials import Keys


class StoreSection(Section):
    """How to reach an object store where the environment does not say it. Everything is optional: without it,
    credentials and region are found as other programs find them, in the environment, AWS's shared files or
    the role of the machine."""

    endpoint: str | None = None
    """Address of a compatible server, such as `https://minio.example.com:9000`. None: the cloud's own.
    Requests are encrypted unless it begins with `http://`."""
    region: str | None = None
    """Region of the buckets (S3). None: that of the environment or the profile, else us-east-1."""
    path_style: bool = True
    """For S3 with an `endpoint`: whether requests go to `endpoint/bucket/key`, as most compatible servers
    want it. false: to `bucket.endpoint/key`."""
    access_key_id: Secret = Secret()
    """Id of the access key; for Azure the account. Use `${NAME}` to take it from the environment."""
    secret_access_key: Secret = Secret()
    """The secret that belongs to it; for Azure the account's key. Use `${NAME}` to take it from the
    environment."""
    session_token: Secret = Secret()
    """The token of temporary credentials (S3). They must last as long as the pipeline runs; a profile or a
    role renews them."""
    profile: str | None = None
    """A profile of AWS's shared files, instead of keys. On a cluster, each machine needs it."""

    @field_validator("endpoint")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/@]+(/.*)?", value):
            raise ValueError(
                "write an address that begins with http:// or https://, and no credentials in it"
            )
        return value

    @model_validator(mode="after")
    def _has_one_kind_of_credentials(self) -> Self:
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ValueError("`access_key_id` and `secret_access_key` go together")
        if self.session_token and not self.has_keys:
            raise ValueError("`session_token` needs `access_key_id` and `secret_access_key`")
        if self.profile is not None and self.has_keys:
            raise ValueError("give keys or a `profile`, not both")
        return self

    @property
    def has_keys(self) -> bool:
        return bool(self.access_key_id)

    def keys(self) -> Keys:
        return Keys(
            self.access_key_id.reveal(), self.secret_access_key.reveal(), token=self.session_token.reveal()
        )
