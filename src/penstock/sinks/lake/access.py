"""How Penstock itself reaches the files of a lake table: as the table's own library does.

Nothing is configured twice. Endpoint, region and credentials are those that Iceberg's `FileIO`, or Hadoop's
file system, has for the table. A catalog may have handed them out for a limited time, with each load of a
table; so they are taken anew from each loaded table.

**Credentials on their way to tasks.** Spark's tasks get a reference to a file with the keys
(`store/credentials.py` says why), in a directory of this run that only this account can read. So tasks on
other machines cannot use such keys. There, files are written by Spark's own writer, unless the machines have
credentials of their own (environment, profiles, roles).
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.sinks.lake.scratch import make_directory
from penstock.sinks.spark_sessions import java_map
from penstock.store.base import Store
from penstock.store.credentials import Ambient, Credentials, Keys, LentKeys
from penstock.store.files import Folder, LocalFiles, ObjectFiles, is_object, split
from penstock.store.location import Location
from penstock.store.opening import open_store
from penstock.store.options import Retries, StoreOptions

log = logging.getLogger(__name__)

Get = Callable[[str], str]
"""Looks up an option. Empty: it is not set."""

_FOLDER_NAME = "x"
"""A file name to ask with. Whether a folder can have files does not depend on their names."""


class Access:
    """Penstock's own access to the files of tables. Thread-safe. `close` it when the run ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._is_local = str(spark.sparkContext.master).startswith("local")
        self._lent: dict[str, tuple[tuple[str, str, str], LentKeys]] = {}
        self._directory: Path | None = None
        self._guard = threading.Lock()
        self._refused: set[str] = set()

    def folder(self, location: str, file_io: Any = None) -> Folder | None:
        """The folder at a location of a table's metadata. `file_io`: Iceberg's, of the table; without one,
        Hadoop's options hold. None: Penstock cannot write there by itself."""
        scheme, found, _ = location.partition(":")
        if not found or scheme == "file" or "/" in scheme:
            return Folder(LocalFiles(), location)
        if not is_object(f"{location}/{_FOLDER_NAME}"):
            return None
        bucket, _ = split(location)
        options = self._of_iceberg(location, bucket, file_io) if file_io is not None else None
        if options is None and (file_io is None or _is_hadoop(file_io)):
            options = self._of_hadoop(bucket)
        if options is None:
            self._say_once(bucket)
            return None
        travels = self._is_local or isinstance(options.credentials, Ambient)
        return Folder(ObjectFiles(options, travels), location)

    def store(self, location: str, *, retries: Retries | None = None) -> Store | None:
        """The store of what is below a location, for more than files that are written once. Hadoop's options
        hold. None: Penstock cannot use it by itself."""
        folder = self.folder(location)
        if folder is None or not isinstance(folder.files, ObjectFiles):
            return None
        options = folder.files.options
        return open_store(location, options if retries is None else replace(options, retries=retries))

    def close(self) -> None:
        """Removes the files with keys."""
        with self._guard:
            self._lent.clear()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def _say_once(self, bucket: Location) -> None:
        if bucket.url() not in self._refused:
            self._refused.add(bucket.url())
            log.info(
                "%s: Penstock cannot use the credentials that the table's own library uses, so Spark writes "
                "every file there, which is slower.", bucket.url(),
            )  # fmt: skip

    # where options come from --------------------------------------------------------------------------------

    def _of_iceberg(self, location: str, bucket: Location, file_io: Any) -> StoreOptions | None:
        """The access that is set for the table's S3FileIO. Source: Iceberg's documentation, "AWS", and its
        REST specification, `storage-credentials`."""
        if bucket.kind != "s3" or _is_hadoop(file_io):
            return None
        try:
            properties = java_map(self._spark, file_io.properties())
        except Py4JError:  # it does not say
            return None
        properties |= _vended(file_io, location)
        return self._s3(bucket, location, iceberg_options(properties))

    def _of_hadoop(self, bucket: Location) -> StoreOptions | None:
        """The access that is set for Hadoop's S3A. Source: Hadoop's documentation, "S3A"."""
        if bucket.kind != "s3":
            return None
        conf = self._spark.sparkContext._jsc.hadoopConfiguration()

        def get(name: str) -> str:
            own = conf.get(f"fs.s3a.bucket.{bucket.bucket}.{name}")
            return str(own or conf.get(f"fs.s3a.{name}") or "")

        return self._s3(bucket, bucket.url(), hadoop_options(get))

    def _s3(self, bucket: Location, location: str, found: S3Options | None) -> StoreOptions | None:
        if found is None:
            return None
        credentials: Credentials = Ambient(found.profile)
        if found.keys is not None:
            # A catalog hands out keys with a token: often for one table, and new ones with each load.
            whose = location if found.keys.reveal()[2] else f"{bucket.url()} {found.keys.key_id}"
            credentials = self._lend(f"{found.endpoint} {whose}", found.keys)
        return StoreOptions(
            credentials, endpoint=found.endpoint, region=found.region, path_style=found.path_style
        )

    def _lend(self, name: str, keys: Keys) -> Credentials:
        """A reference to the keys. New keys of the same `name` replace the old ones, and have the same
        reference, so that connections are used again."""
        secrets = keys.reveal()
        with self._guard:
            known = self._lent.get(name)
            if known is not None and known[0] == secrets:
                return known[1].reference
            if self._directory is None:
                self._directory = make_directory(self._spark, "keys-")
                atexit.register(shutil.rmtree, self._directory, ignore_errors=True)
            path = self._directory / hashlib.sha256(name.encode()).hexdigest()
            lending = known[1] if known is not None else LentKeys(path)
            lending.renew(keys)
            self._lent[name] = secrets, lending
            return lending.reference


@dataclass(frozen=True)
class S3Options:
    """How to reach a bucket. `keys`: None if the environment, a profile or a role has them."""

    endpoint: str
    region: str
    path_style: bool
    keys: Keys | None
    profile: str = ""


def iceberg_options(properties: Mapping[str, str]) -> S3Options | None:
    """The access that the properties of an S3FileIO describe. None: Penstock does not support one of them."""
    if properties.get("client.factory") or properties.get("s3.remote-signing-enabled") == "true":
        return None
    key_id, secret = properties.get("s3.access-key-id", ""), properties.get("s3.secret-access-key", "")
    keys = None
    if key_id and secret:
        ends = properties.get("s3.session-token-expires-at-ms")
        moment = datetime.fromtimestamp(int(ends) / 1000, timezone.utc) if ends else None
        keys = Keys(key_id, secret, token=properties.get("s3.session-token", ""), ends=moment)
    elif properties.get("client.credentials-provider"):
        return None
    return S3Options(
        properties.get("s3.endpoint", ""),
        properties.get("client.region", ""),
        properties.get("s3.path-style-access") == "true",
        keys,
    )


def hadoop_options(get: Get) -> S3Options | None:
    """The access that the options of an S3A file system describe. They have no prefix here. None: Penstock
    does not support one of them."""
    provider, endpoint = get("aws.credentials.provider"), get("endpoint")
    key_id, secret, token = get("access.key"), get("secret.key"), get("session.token")
    profile = get("auth.profile.name") if provider.endswith("ProfileAWSCredentialsProvider") else ""
    if profile:
        key_id = ""
    if provider.endswith("SimpleAWSCredentialsProvider"):
        token = ""  # Spark takes it from the environment, to which these keys need not belong
    if endpoint and "://" not in endpoint:
        plain = get("connection.ssl.enabled") == "false"
        endpoint = f"{'http' if plain else 'https'}://{endpoint}"
    keys = Keys(key_id, secret, token=token) if key_id and secret else None
    if keys is None and provider and not _is_usual(provider):
        return None
    return S3Options(endpoint, get("endpoint.region"), get("path.style.access") == "true", keys, profile)


def _is_usual(providers: str) -> bool:
    """Whether S3A looks for credentials only where every library does."""
    usual = ("EnvironmentVariableCredentialsProvider", "IAMInstanceCredentialsProvider",
             "SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider",
             "DefaultCredentialsProvider", "ProfileCredentialsProvider",
             "ProfileAWSCredentialsProvider")  # fmt: skip
    return all(one.strip().endswith(usual) for one in providers.split(",") if one.strip())


def _is_hadoop(file_io: Any) -> bool:
    return bool(file_io.getClass().getSimpleName() == "HadoopFileIO")


def _vended(file_io: Any, location: str) -> dict[str, str]:
    """The credential that a REST catalog has given for this location: the one with the longest matching
    prefix."""
    try:
        found = [(str(one.prefix()), one.config()) for one in file_io.credentials()]
    except Py4JError:  # this FileIO takes none
        return {}
    fitting = [(prefix, config) for prefix, config in found if location.startswith(prefix)]
    if not fitting:
        return {}
    return dict(max(fitting, key=lambda one: len(one[0]))[1])
