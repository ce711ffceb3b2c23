"""What a store answers when it cannot do what was asked. Each error names the URL, and never a credential.

| class | what it means | what the caller does |
|---|---|---|
| `StoreUnavailable` | no answer, throttled, or broken, also after retries | tries the whole step again |
| `StoreRefused` | credentials, rights, bucket, region or URL are wrong | waits for the operator, or stops |
| `KeyRefused` | no store could hold an object of this name | stops |
| `ObjectMissing` | there is no such object | decides |
| `ObjectExists` | somebody else has put it first | decides: it has lost the race |
| `ObjectChanged` | it is no longer the version that was seen | reads it again, and decides |
| `ObjectShorter` | it ends before the bytes that were asked for | stops |

The texts of the libraries below are never shown. They contain what servers answer, and servers repeat what
they were sent: S3 answers an expired session token with the token itself, and an Azure URL may carry its
signature. What is kept of them is the HTTP status and the error code.
"""

from __future__ import annotations

from penstock.errors import ConfigError, PenstockError, TargetRefused, TransientError


class StoreUnavailable(TransientError):
    """The store did not do it within the limits of `Retries`. A write may have happened nevertheless, and
    may even happen later."""


class StoreRefused(TargetRefused):
    """The store answers, but not to us: credentials, rights, bucket, region or URL are wrong."""


class KeyRefused(ConfigError):
    """The name cannot be one of an object, in any store or in this one."""


class ObjectMissing(PenstockError):
    """There is no object of this name."""


class ObjectExists(PenstockError):
    """`put_if_absent` came second. What is there was not written by this call."""


class ObjectChanged(PenstockError):
    """`put_if_unchanged` came second: the object is gone, or is not the version that was seen."""


class ObjectShorter(PenstockError):
    """The object ends before the end of the range that was asked for."""
