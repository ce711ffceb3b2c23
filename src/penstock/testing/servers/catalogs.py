"""Private servers of Iceberg catalogs: Nessie, which speaks Iceberg's REST protocol, and a Hive metastore."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import subprocess
from pathlib import Path
from xml.sax.saxutils import escape

from penstock.artifacts.maven import fetch, java
from penstock.errors import ConfigError
from penstock.testing.servers.process import SHORT_LIVED_JVM, PrivateServer, free_port
from penstock.testing.servers.s3 import KEY_ID, SECRET, S3Server

NESSIE_JAVA_MIN = 21
"""Release of Java that this release of Nessie is compiled for."""
_NESSIE = "org.projectnessie.nessie:nessie-quarkus:0.99.0:runner"
_JVMS = Path("/usr/lib/jvm")


def java_of(version_min: int) -> str:
    """The path of a Java of at least this version: that of JAVA_HOME, the one on the PATH, or one below
    /usr/lib/jvm. Raises `ConfigError` if there is none."""
    homes = [Path(home) for home in (os.environ.get("JAVA_HOME"),) if home]
    homes += sorted(_JVMS.iterdir()) if _JVMS.is_dir() else []
    for path in [java(), *[str(home / "bin" / "java") for home in homes]]:
        if Path(path).exists() and _major(path) >= version_min:
            return path
    raise ConfigError(
        f"There is no Java {version_min} or newer in JAVA_HOME, on the PATH or below {_JVMS}.",
        hint=f"Install one (Debian: apt-get install openjdk-{version_min}-jre-headless), or set JAVA_HOME.",
    )


def _major(path: str) -> int:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
        if found := re.search(r'version "(\d+)', said.stderr):
            return int(found[1])
    return 0


class Nessie(PrivateServer):
    """Keeps its catalog in memory, and tables in a bucket of `store`. It needs Java 21 or newer.

    `vends`: it hands out temporary keys, which it gets from the store (moto can do that). Otherwise its
    clients need keys of their own. It never signs requests for them: Iceberg 1.12 asks for that at another
    address than Nessie 0.99 has.
    """

    kind = "nessie"
    WAREHOUSE = "wh"

    def __init__(self, store: S3Server, bucket: str, *, vends: bool = False) -> None:
        self._java = java_of(NESSIE_JAVA_MIN)
        [self._jar] = fetch(_NESSIE)
        super().__init__()
        self._store, self._bucket, self._vends = store, bucket, vends
        self._management_port = free_port()
        self.start()

    @property
    def uri(self) -> str:
        return f"http://{self.host}:{self.port}/iceberg"

    def command(self) -> tuple[list[str], dict[str, str]]:
        s3 = "nessie.catalog.service.s3.default-options"
        options = {
            "quarkus.http.host": self.host,
            "quarkus.http.port": self.port,
            "quarkus.management.host": self.host,
            "quarkus.management.port": self._management_port,
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": self.WAREHOUSE,
            f"nessie.catalog.warehouses.{self.WAREHOUSE}.location": f"s3://{self._bucket}/{self.WAREHOUSE}",
            f"{s3}.endpoint": self._store.url,
            f"{s3}.path-style-access": "true",
            f"{s3}.region": "us-east-1",
            f"{s3}.access-key": "urn:nessie-secret:quarkus:store-key",
            f"{s3}.request-signing-enabled": "false",
            f"{s3}.sts-endpoint": self._store.url,
            f"{s3}.client-iam.enabled": str(self._vends).lower(),
            f"{s3}.client-iam.assume-role": "arn:aws:iam::123456789012:role/lake",
            "store-key.name": KEY_ID,
            "store-key.secret": SECRET,
            "quarkus.log.level": "WARN",
        }
        program = [self._java, *SHORT_LIVED_JVM, "-Xmx512m"]
        program += [f"-D{name}={value}" for name, value in options.items()]
        return [*program, "-jar", str(self._jar)], {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

    def ready(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/iceberg/v1/config")
            return connection.getresponse().status == http.client.OK
        return False


class HiveMetastore(PrivateServer):
    """The metastore that is part of PySpark, on a database in its own folder."""

    kind = "hive-metastore"

    def __init__(self) -> None:
        super().__init__()
        self.warehouse = self.folder / "warehouse"
        self.warehouse.mkdir()
        database = self.folder / "metastore"
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={database};create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "NONE",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": str(self.warehouse),
            "hive.metastore.disallow.incompatible.col.type.changes": "false",  # as Iceberg needs it
            "hive.async.log.enabled": "false",
        }
        lines = [
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in settings.items()
        ]
        (self.folder / "hive-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        self.start()

    @property
    def uri(self) -> str:
        return f"thrift://{self.host}:{self.port}"

    @property
    def iceberg_properties(self) -> dict[str, str]:
        """The metastore has no tables for locks. Commits are safe without them, as it has HIVE-26882."""
        return {"hadoop.iceberg.engine.hive.lock-enabled": "false"}

    def command(self) -> tuple[list[str], dict[str, str]]:
        import pyspark  # takes half a second, which tests without it should not wait

        jars = Path(pyspark.__file__).with_name("jars")
        program = [java(), *SHORT_LIVED_JVM, "-Xmx512m"]
        program += [f"-Dderby.stream.error.file={self.folder / 'derby.log'}"]
        program += ["-cp", f"{self.folder}:{jars}/*", "org.apache.hadoop.hive.metastore.HiveMetaStore"]
        return [*program, "-p", str(self.port)], {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5):
            return True
        return False
