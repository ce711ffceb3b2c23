"""What went wrong with one request, and whether trying again can help. Pure.

The library below (`object_store`, in Rust) gives an exception class and a text. The classes are too coarse:
most faults are a `GenericError`, and status 409 counts as "exists" even where S3 means "two conditional
writes met, try again". So the HTTP status and the server's error code are read from the text. Nothing else of
the text is kept (`errors.py` says why).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError

from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import InternalError, PenstockError
from penstock.store.errors import (
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectShorter,
    StoreRefused,
    StoreUnavailable,
)

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>|\"code\": ?\"?([A-Za-z0-9.]{1,64})")
_PAGE = re.compile(r"<!doctype html|<html", re.IGNORECASE)
CODES = Codes(
    "https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, "
    "https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes",
    outage=frozenset({
        408, 425, 429, 500, 502, 503, 504, 507, *range(520, 531), 302, 303, 307, 308,
        "ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown", "ThrottlingException",
        "Throttling", "RequestLimitExceeded", "ServerBusy", "InternalError", "ServiceUnavailable",
        "OperationTimedOut", "Busy",
    }),
    configuration=frozenset({"PermanentRedirect", "TemporaryRedirect", "NotImplemented"}),
    other=Verdict.CONFIGURATION,
)  # fmt: skip
"""By the code of an error, and by its status. No error of a store is about one row."""
_ENDED = {"ExpiredToken", "TokenRefreshRequired", "ExpiredTokenException"}
_METADATA_SERVERS = (
    "//169.254.169.254",
    "//metadata.google.internal",
    "//169.254.170.2",
    "//[fd00:ec2::254]",
)

_RIGHTS = "Give the account the rights to list the bucket, and to read, write and delete below the prefix."
_CREDENTIALS = "Check the key and the secret, and that they belong to this store."
_HINTS = {
    "NoSuchBucket": "Create the bucket, or correct its name in the URL.",
    "ContainerNotFound": "Create the container, or correct its name in the URL.",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "AuthenticationFailed": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "RequestTimeTooSkewed": "Correct this machine's clock: the store refuses requests of another time.",
    "AuthorizationHeaderMalformed": "Check the region of the bucket (`region`).",
    "PermanentRedirect": "Check the region of the bucket (`region`), and the endpoint.",
    "NotImplemented": "This server lacks something that Penstock needs of a store.",
}
_NO_CREDENTIALS = (
    "Set those of the store in the environment or in the pipeline file, or give this machine a role."
)
_NO_CREDENTIALS_ATTEMPTS = 3
"""A machine whose role is not known yet gets it within moments. Without a role, more attempts would not
help."""


@dataclass(frozen=True)
class Fault:
    """What is known of a failed request. `error`: the one that the caller gets if this was the last
    attempt."""

    error: PenstockError
    passing: bool = False
    attempts_max: int = 1_000_000
    """Attempts at most, if a few show this fault well enough. Otherwise the store's own limit counts."""
    keys_ended: bool = False
    """The next attempt needs new keys."""


def fault_of(error: BaseException, *, what: str, url: str) -> Fault:
    """`what` was not done with the object or folder at `url`: "read", "written", "listed", "deleted"."""
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    match = _CODE.search(text)
    code = (match[1] or match[2]) if match else ""
    reason = " ".join(filter(None, (f"HTTP {status}" if status else "", code)))

    def failed(kind: type[PenstockError], why: str, hint: str) -> PenstockError:
        return kind(f"{url} could not be {what}: {why}.", hint=hint, url=url, status=status, code=code)

    if any(server in text for server in _METADATA_SERVERS):
        refused = failed(StoreRefused, "no credentials were found", _NO_CREDENTIALS)
        return Fault(refused, passing=True, attempts_max=_NO_CREDENTIALS_ATTEMPTS)
    if code in _ENDED:
        refused = failed(StoreRefused, reason, "The credentials have ended. Renew them.")
        return Fault(refused, passing=True, attempts_max=3, keys_ended=True)
    if _PAGE.search(text):  # whatever its status: no store answers pages for people, and this one is no 404
        why = "a page of HTML was answered, as by a proxy or a login"
        return Fault(
            failed(StoreUnavailable, why, "Check proxies on the way, and the endpoint."), passing=True
        )
    if CODES.verdict(code, status) is Verdict.OUTAGE:
        hint = "The store is overloaded or broken. If it lasts, ask who runs it."
        return Fault(failed(StoreUnavailable, reason, hint), passing=True)
    if code in ("NoSuchBucket", "ContainerNotFound"):
        return Fault(failed(StoreRefused, reason, _HINTS[code]))
    if isinstance(error, AlreadyExistsError):
        return Fault(ObjectExists(f"{url} exists already.", url=url))
    if isinstance(error, PreconditionError | NotModifiedError):
        return Fault(ObjectChanged(f"{url} is no longer the version that was seen.", url=url))
    if isinstance(error, FileNotFoundError):
        return Fault(ObjectMissing(f"{url} does not exist.", url=url, code=code))
    if status == 416 or "but object was only" in text:  # the library's own words, if the server sends nothing
        return Fault(ObjectShorter(f"{url} ends before the bytes that were asked for.", url=url))
    if status:
        return Fault(failed(StoreRefused, reason, _HINTS.get(code, _RIGHTS if status in (401, 403) else "")))
    return _without_status(text, failed)


def _without_status(text: str, failed: Callable[[type[PenstockError], str, str], PenstockError]) -> Fault:
    if "valid authentication credentials" in text:
        return Fault(failed(StoreRefused, "the credentials have another form", _CREDENTIALS))
    if "redirect without LOCATION" in text:
        return Fault(failed(StoreRefused, "it is in another region", _HINTS["PermanentRedirect"]))
    if "URL scheme is not allowed" in text:
        return Fault(failed(StoreRefused, "it is not encrypted (http://)", "Name the endpoint with http://."))
    if "HTTP error" in text or "error sending request" in text or "body error" in text:
        return Fault(failed(StoreUnavailable, _network(text),
                            "Check the network, and the endpoint of the store."), passing=True)  # fmt: skip
    if "metadata from headers" in text or "response" in text:
        return Fault(failed(StoreUnavailable, "the answer is damaged", ""), passing=True)
    return Fault(failed(InternalError, "the library below refused it", "Please report this."))


def _network(text: str) -> str:
    for word, meaning in (
        ("dns error", "the host name is unknown"),
        ("TimedOut", "no answer in time"),
        ("ConnectionRefused", "nobody listens at its address"),
        ("certificate", "its TLS certificate is not trusted"),
        ("body error", "the answer was cut off"),
    ):
        if word in text:
            return meaning
    return "the connection was lost"
