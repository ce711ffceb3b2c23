"""Makes the clients of the library below (obstore), one kind for each cloud.

**After a fork.** The library has one set of threads per process, started with the first request. A forked
child has none of them, and each of its requests would wait forever. So a child whose parent had used a client
refuses. Spark's Python workers are forked from a daemon that does nothing but fork, so they are not
concerned, as long as nobody makes a request in the daemon.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from obstore.store import AzureStore, GCSStore, S3Store

from penstock.errors import InternalError, PenstockError
from penstock.store import profiles
from penstock.store.credentials import Ambient, Credentials, Keys
from penstock.store.errors import StoreRefused
from penstock.store.location import Location
from penstock.store.options import StoreOptions

Client: TypeAlias = "S3Store | GCSStore | AzureStore"
Use = Literal["read", "write", "parts"]
"""What a client is used for. A client for `parts` repeats failed requests by itself, the others fail at
once."""
_FOREVER = timedelta(days=1)
NO_CREDENTIALS = "Penstock has no credentials for this request"

_state = {"used": False, "lost": False}


def _forked() -> None:
    _state["lost"] = _state["used"]


os.register_at_fork(after_in_child=_forked)


class Clients:
    """The clients of one store, made when they are first needed. Any thread may use them."""

    def __init__(self, location: Location, options: StoreOptions) -> None:
        self._location = location
        self._options = options
        self._lock = threading.Lock()
        self._made: dict[tuple[Use, int], Client] = {}
        self._provider: Provider | None = None

    def get(self, use: Use, *, size: int = 0) -> Client:
        """A client for a use. `size`: the bytes that a request sends. Raises `StoreRefused` if a client
        cannot be made."""
        if _state["lost"]:
            raise InternalError(
                "This process was forked after its parent had used an object store, so it cannot use one.",
                hint="Start the process with `spawn`, or use the store only after the fork.",
            )
        _state["used"] = True
        patience = 1
        while patience * self._options.part_bytes < size:
            patience *= 4  # few clients, since each has connections of its own
        with self._lock:
            if (use, patience) not in self._made:
                self._made[use, patience] = self._make(use, patience)
            return self._made[use, patience]

    def renew(self) -> None:
        """Makes new clients read the credentials again."""
        with self._lock:
            self._made.clear()

    def failure(self, error: BaseException) -> PenstockError | None:
        """Why there were no credentials, if that is what `error` of a request means."""
        return self._provider.failure if self._provider and NO_CREDENTIALS in str(error) else None

    def _make(self, use: Use, patience: int) -> Client:
        make = {"s3": _s3, "gcs": _gcs, "azure": _azure}[self._location.kind]
        try:
            common = _common(self._options, use, patience)
            if self._provider is None:
                self._provider = _provider(self._location, self._options)
            return make(self._location, self._options, {**common, "credential_provider": self._provider})
        except PenstockError:
            raise
        except Exception:  # its text may hold what it was given
            raise StoreRefused(
                f"There is no access to {self._location.url()} with these settings.",
                hint="Check the endpoint, the region or account, and the credentials.",
            ) from None


class Provider:
    """Hands keys to the library below, which asks again before they end.

    The library would hide an error, so the newest one is kept in `failure`, and the library gets one whose
    text is `NO_CREDENTIALS`."""

    def __init__(self, credentials: Credentials, form: Callable[[Keys], dict[str, Any]]) -> None:
        self._credentials = credentials
        self._form = form
        self.failure: PenstockError | None = None

    def __call__(self) -> dict[str, Any]:
        try:
            keys = self._credentials.keys()
        except PenstockError as error:
            self.failure = error
            raise RuntimeError(NO_CREDENTIALS) from None
        except Exception as error:
            self.failure = StoreRefused(
                f"Nobody handed out credentials for the store: {type(error).__name__}.",
                hint="Check the catalog or program that hands them out.",
            )
            raise RuntimeError(NO_CREDENTIALS) from None
        assert keys is not None
        return {**self._form(keys), "expires_at": keys.renew_at()}


def _common(options: StoreOptions, use: Use, patience: int) -> dict[str, Any]:
    """Whole requests have a limit where their size is known, reads where nothing arrives for so long."""
    retries = options.retries
    seconds = timedelta(seconds=options.request_seconds_max * patience)
    return {
        "client_options": {
            "connect_timeout": timedelta(seconds=options.connect_seconds_max),
            **({"read_timeout": seconds, "timeout": _FOREVER} if use == "read" else {"timeout": seconds}),
        },
        "retry_config": {
            "max_retries": retries.attempts_max - 1 if use == "parts" else 0,
            "retry_timeout": timedelta(seconds=retries.seconds_max),
            "backoff": {
                "init_backoff": timedelta(seconds=retries.schedule.first_s),
                "max_backoff": timedelta(seconds=retries.schedule.max_s),
                "base": retries.schedule.factor,
            },
        },
    }


def _provider(location: Location, options: StoreOptions) -> Provider | None:
    """The provider of credentials. None: the library below looks for credentials by itself."""
    credentials: Credentials = options.credentials
    if isinstance(credentials, Ambient):
        profile = profiles.ProfileKeys.of(credentials.profile) if location.kind == "s3" else None
        if profile is None:
            return None
        credentials = profile
    return Provider(credentials, {"s3": _s3_form, "gcs": _gcs_form, "azure": _azure_form}[location.kind])


def _s3_form(keys: Keys) -> dict[str, Any]:
    key_id, secret, token = keys.reveal()
    return {"access_key_id": key_id, "secret_access_key": secret, "token": token or None}


def _gcs_form(keys: Keys) -> dict[str, Any]:
    return {"token": keys.reveal()[1]}


def _azure_form(keys: Keys) -> dict[str, Any]:
    return {"access_key": keys.reveal()[1]}


def _s3(location: Location, options: StoreOptions, common: dict[str, Any]) -> Client:
    config: Any = {"region": _region(options)}
    endpoint = options.endpoint or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    virtual = "." not in location.bucket and not (endpoint and options.path_style)
    config["virtual_hosted_style_request"] = virtual
    if endpoint:
        scheme, _, host = endpoint.rstrip("/").partition("://")
        config["endpoint"] = f"{scheme}://{location.bucket}.{host}" if virtual else f"{scheme}://{host}"
        common["client_options"]["allow_http"] = scheme == "http"
    return S3Store(location.bucket, config=config, **common)


def _region(options: StoreOptions) -> str:
    named = options.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    if not named and isinstance(options.credentials, Ambient):
        named = profiles.region(options.credentials.profile)
    return named or "us-east-1"


def _gcs(location: Location, options: StoreOptions, common: dict[str, Any]) -> Client:
    config: Any = {}
    if options.endpoint:
        config["base_url"] = options.endpoint
        common["client_options"]["allow_http"] = options.endpoint.startswith("http://")
    return GCSStore(location.bucket, config=config, **common)


def _azure(location: Location, options: StoreOptions, common: dict[str, Any]) -> Client:
    config: Any = {}
    if account := location.account or options.account:
        config["account_name"] = account
    if options.endpoint:
        config["endpoint"] = options.endpoint
        common["client_options"]["allow_http"] = options.endpoint.startswith("http://")
    return AzureStore(location.bucket, config=config, **common)


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
