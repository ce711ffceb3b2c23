"""Where a store is, as a URL; and which names its objects may have.

| URL | store |
|---|---|
| `file:///folder` | a local or mounted directory |
| `s3://bucket/prefix`, also `s3a://` | Amazon S3 and compatible servers |
| `gs://bucket/prefix` | Google Cloud Storage |
| `az://container/prefix`, `abfss://container@account.dfs.core.windows.net/prefix` | Azure Blob Storage |

Paths of `file:` URLs are percent-decoded, as Python and browsers write them. All other paths are taken
literally, as Hadoop does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.printable import printable
from penstock.store.errors import KeyRefused, StoreRefused

KEY_BYTES_MAX = 1024
"""S3's limit for a key, with the prefix of the location."""
SEGMENT_BYTES_MAX = 255
"""What a local file system allows for a name."""

RESERVED = ".penstock"
"""The first segment of no key: a local store keeps its lock and its unfinished files there."""

KINDS = {
    "file": "local",
    "s3": "s3", "s3a": "s3", "s3n": "s3",
    "gs": "gcs",
    "az": "azure", "abfs": "azure", "abfss": "azure",
}  # fmt: skip
"""URL scheme → kind of store."""

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/?#]*)(?P<path>/.*)?", re.DOTALL)
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_AZURE_HOST = re.compile(r"(?P<container>[^@]+)@(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.core\.windows\.net")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_FORMS = (
    "Write file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
    "abfss://container@account.dfs.core.windows.net/prefix."
)


@dataclass(frozen=True)
class Location:
    """A place for objects. Holds no credentials: a URL that contains some is refused."""

    scheme: str
    bucket: str
    """Bucket or container; empty for `file:`."""
    prefix: str
    """The common beginning of all keys, without slashes at its ends. For `file:` an absolute path."""
    account: str = ""
    """The account of Azure, if the URL names it."""

    @classmethod
    def parse(cls, url: str) -> Location:
        """The location that a URL names. Raises `StoreRefused`. The message repeats nothing of a URL that
        might contain a password."""
        match = _URL.fullmatch(url)
        if match is None:
            raise StoreRefused("A store's location is not a URL.", hint=_FORMS)
        scheme, host, path = match["scheme"], match["host"], match["path"] or ""
        if scheme not in KINDS:
            raise StoreRefused(f"There is no store for {printable(scheme)}:// URLs.", hint=_FORMS)
        if KINDS[scheme] == "local":
            return cls._local(host, path)
        account = ""
        if KINDS[scheme] == "azure" and (azure := _AZURE_HOST.fullmatch(host)):
            host, account = azure["container"], azure["account"]
        if not _BUCKET.fullmatch(host):
            raise StoreRefused(
                f"The {scheme}:// URL of a store does not name a bucket or container alone.",
                hint=f"{_FORMS} Credentials do not belong into the URL.",
            )
        prefix = path.strip("/")
        if prefix:
            _check_path(prefix, f"{scheme}://{host}/{prefix}")
        return cls(scheme, host, prefix, account)

    @classmethod
    def _local(cls, host: str, path: str) -> Location:
        path = unquote(path)
        if host or not path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise StoreRefused("A file:// URL of a store does not name an absolute path.", hint=_FORMS)
        return cls("file", "", "/" + path.strip("/"))

    @property
    def kind(self) -> str:
        return KINDS[self.scheme]

    def path(self, key: str) -> str:
        """The key within the bucket, or below `/` for `file:`. Raises `KeyRefused`."""
        check_key(key, self.url(key))
        full = self._joined(key)
        if self.kind != "local" and len(full.encode()) > KEY_BYTES_MAX:
            raise KeyRefused(
                f"{self.url(key)} is longer than {KEY_BYTES_MAX} bytes.", hint="Use a shorter prefix."
            )
        return full

    def url(self, key: str = "") -> str:
        """For people: printable, and without anything secret."""
        host = f"{self.bucket}@{self.account}.dfs.core.windows.net" if self.account else self.bucket
        path = (self._joined(key) if key else self.prefix).lstrip("/")
        return printable(f"{self.scheme}://{host}/{path}" if path or not host else f"{self.scheme}://{host}")

    def _joined(self, key: str) -> str:
        return f"{self.prefix.rstrip('/')}/{key}" if self.prefix else key

    def __str__(self) -> str:
        return self.url()


def check_key(key: str, url: str) -> None:
    """Refuses what some store could not hold, or would take for another key. Raises `KeyRefused`."""
    _check_path(key, url)
    if key.split("/", 1)[0] == RESERVED:
        raise KeyRefused(f"{url}: the name {RESERVED} is reserved.", hint="Choose another name.")


def is_key(key: str) -> bool:
    return _fault(key) is None and key.split("/", 1)[0] != RESERVED


def _check_path(path: str, url: str) -> None:
    if fault := _fault(path):
        raise KeyRefused(f"{printable(url)} is no name for an object: {fault}.", hint="Choose another name.")


def _fault(path: str) -> str | None:
    if not path:
        return "it is empty"
    if _CONTROL.search(path):
        return "it contains a control character"
    try:
        encoded = [segment.encode() for segment in path.split("/")]
    except UnicodeEncodeError:
        return "it cannot be written as UTF-8"
    if any(segment in (b"", b".", b"..") for segment in encoded):
        return "it has an empty segment, or one that is `.` or `..`"
    if max(map(len, encoded)) > SEGMENT_BYTES_MAX:
        return f"a segment is longer than {SEGMENT_BYTES_MAX} bytes"
    if sum(map(len, encoded)) + len(encoded) - 1 > KEY_BYTES_MAX:
        return f"it is longer than {KEY_BYTES_MAX} bytes"
    return None
