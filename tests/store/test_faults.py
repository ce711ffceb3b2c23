"""Texts of the library below, as it gave them for real answers. `test_lost_answers.py` has the real thing."""

from __future__ import annotations

import pickle

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError, PreconditionError

from penstock.errors import InternalError, PenstockError
from penstock.store.errors import (
    KeyRefused,
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectShorter,
    StoreRefused,
    StoreUnavailable,
)
from penstock.store.faults import fault_of

URL = "s3://bucket/one"


def answered(status: int, code: str) -> str:
    return (
        "Generic S3 error: Error performing PUT http://127.0.0.1:40405/bucket/one in 2.14285ms - Server "
        f"returned non-2xx status code: {status} Some Words: <Error><Code>{code}</Code><Message>the secret"
        "</Message></Error>"
    )


@pytest.mark.parametrize(
    ("error", "kind", "passing"),
    [
        (GenericError(answered(503, "SlowDown")), StoreUnavailable, True),
        (GenericError(answered(500, "InternalError")), StoreUnavailable, True),
        (GenericError(answered(429, "TooManyRequests")), StoreUnavailable, True),
        (GenericError(answered(400, "RequestTimeout")), StoreUnavailable, True),
        (AlreadyExistsError(answered(409, "ConditionalRequestConflict")), StoreUnavailable, True),
        (AlreadyExistsError(answered(412, "PreconditionFailed")), ObjectExists, False),
        (AlreadyExistsError(answered(409, "BlobAlreadyExists")), ObjectExists, False),
        (PreconditionError(answered(412, "PreconditionFailed")), ObjectChanged, False),
        (PreconditionError(answered(404, "NoSuchKey")), ObjectChanged, False),
        (PreconditionError(answered(404, "NoSuchBucket")), StoreRefused, False),
        (FileNotFoundError(answered(404, "NoSuchKey")), ObjectMissing, False),
        (FileNotFoundError(answered(404, "NoSuchBucket")), StoreRefused, False),
        (GenericError(answered(416, "InvalidRange")), ObjectShorter, False),
        (GenericError("Generic MicrosoftAzure error: Wanted range starting at 6, but object was only 6 bytes "
                      "long"), ObjectShorter, False),
        (PermissionDeniedError(answered(403, "AccessDenied")), StoreRefused, False),
        (GenericError(answered(400, "ExpiredToken")), StoreRefused, True),
        (GenericError("Error performing GET http://x in 1ms - HTTP error: error sending request"),
         StoreUnavailable, True),
        (GenericError("HTTP error: request or response body error"), StoreUnavailable, True),
        (GenericError("Unable to extract metadata from headers: no ETag"), StoreUnavailable, True),
        (GenericError("Received redirect without LOCATION, this normally indicates an incorrectly configured "
                      "region"), StoreRefused, False),
        (GenericError("Error performing PUT http://169.254.169.254/latest/api/token in 5s - HTTP error"),
         StoreRefused, True),
        (RuntimeError("anything"), InternalError, False),
    ],
)  # fmt: skip
def test_each_fault_says_who_acts(error: BaseException, kind: type[PenstockError], passing: bool) -> None:
    fault = fault_of(error, what="written", url=URL)
    assert type(fault.error) is kind
    assert fault.passing == passing
    assert URL in fault.error.message
    assert "secret" not in str(fault.error.to_json())


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("TimedOut", "no answer in time"), ("ConnectionRefused", "nobody listens"), ("dns error", "host name")],
)
def test_a_network_fault_is_named(word: str, meaning: str) -> None:
    fault = fault_of(GenericError(f"HTTP error: error sending request {word}"), what="read", url=URL)
    assert meaning in fault.error.message


@pytest.mark.parametrize(
    "kind",
    [StoreUnavailable, StoreRefused, KeyRefused, ObjectMissing, ObjectExists, ObjectChanged, ObjectShorter],
)
def test_errors_are_pickled_with_their_facts(kind: type[PenstockError]) -> None:
    error = kind("It failed.", hint="Mend it.", url=URL)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.to_json() == error.to_json()
