"""The cluster, through HBase's own client in the JVM of the Spark session."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.sinks.hbase.frames import Frame, head, unpacked
from penstock.sinks.hbase.options import SITE, HBaseOptions

SCAN_ROWS = 10_000
"""Rows in a portion that is read: about as many as the core decodes at a time."""
SCAN_BYTES = 8 * 1024**2
"""Bytes of a portion with fewer rows, about. Java and Python each have it in memory."""
WHOLE_ROWS = 1000
"""Whole rows of one answer of a server, if they are small."""
_NETTY = "org.apache.hbase.thirdparty.io.netty"
MEMORY_MAX = 256 * 1024**2
"""Bytes of all answers that the client holds at once. Those of servers that keep to what is asked have about
`SCAN_BYTES`, but the client would take answers of 2 GB."""


class ClusterError(Exception):
    """An error of the cluster or its client. `causes`: for the error and each of its causes, the outermost
    first, the name of its class in Java and those of the classes above it. `kinds`: only the names of their
    own classes. Messages are left out, because they may have keys of rows."""

    def __init__(self, causes: Sequence[Sequence[str]]) -> None:
        self.causes = tuple(tuple(one) for one in causes)
        self.kinds = tuple(one[0] for one in self.causes)
        super().__init__(", ".join(self.kinds))


def _limit_memory(system: Any) -> None:
    """Limits the memory of the client, if none of its classes is loaded yet. Its network library counts only
    buffers that it may make by itself (`tryReflectionSetAccessible`)."""
    limits = {"maxDirectMemory": str(MEMORY_MAX), "tryReflectionSetAccessible": "true"}
    for name, value in limits.items():
        if system.getProperty(f"{_NETTY}.{name}") is None:
            system.setProperty(f"{_NETTY}.{name}", value)


class Cluster:
    """HBase through its Java client, which connects when it is first needed. Calls raise `ClusterError`."""

    def __init__(self, options: HBaseOptions, spark: SparkSession) -> None:
        self._options = options
        jvm: Any = spark._jvm
        self._jvm = jvm
        _limit_memory(jvm.java.lang.System)
        self._hbase = jvm.org.apache.hadoop.hbase
        self._frames = jvm.penstock.hbase.RowFrames
        self._family = options.family.encode()
        self._guard = threading.Lock()
        self._connected: Any = None

    def close(self) -> None:
        with self._guard:
            connected, self._connected = self._connected, None
        if connected is not None:
            connected.close()

    # Tables -------------------------------------------------------------------------------------------------

    def name(self, namespace: str, name: str) -> Any:
        return self._hbase.TableName.valueOf(namespace, name)

    def exists(self, name: Any) -> bool:
        with self._admin() as admin:
            return bool(admin.tableExists(name))

    def description(self, name: Any) -> Any | None:
        """The server's description of a table. None: there is no such table."""
        with self._admin() as admin:
            if not admin.tableExists(name):
                return None
            return admin.getDescriptor(name)

    def make_namespace(self, namespace: str) -> None:
        if namespace == "default":
            return
        try:
            with self._admin() as admin:
                if namespace not in {one.getName() for one in admin.listNamespaceDescriptors()}:
                    admin.createNamespace(self._hbase.NamespaceDescriptor.create(namespace).build())
        except ClusterError as error:
            if "NamespaceExistException" not in error.kinds:  # by another thread, for another table
                raise

    def make_table(
        self,
        name: Any,
        values: Mapping[str, str],
        family: bytes,
        settings: Mapping[str, str],
        *,
        versions: int = 1,
        splits: Sequence[bytes] = (),
    ) -> None:
        client = self._hbase.client
        columns = client.ColumnFamilyDescriptorBuilder.newBuilder(family).setMaxVersions(versions)
        for setting, value in settings.items():
            columns.setValue(setting, value)
        table = client.TableDescriptorBuilder.newBuilder(name).setColumnFamily(columns.build())
        for key, value in values.items():
            table.setValue(key, value)
        with self._admin() as admin:
            if splits:
                admin.createTable(table.build(), self._byte_arrays(splits))
            else:
                admin.createTable(table.build())

    def mark(self, description: Any, values: Mapping[str, str | None]) -> None:
        """Sets these values of a table. None: removes the value."""
        table = self._hbase.client.TableDescriptorBuilder.newBuilder(description)
        for key, value in values.items():
            if value is None:
                table.removeValue(key)
            else:
                table.setValue(key, value)
        with self._admin() as admin:
            admin.modifyTable(table.build())

    def empty(self, name: Any) -> None:
        """Removes all rows; regions stay divided as they are."""
        with self._admin() as admin:
            if not admin.isTableDisabled(name):
                admin.disableTable(name)
            admin.truncateTable(name, True)

    def remove(self, name: Any) -> None:
        with self._admin() as admin:
            if not admin.tableExists(name):
                return
            if not admin.isTableDisabled(name):
                admin.disableTable(name)
            admin.deleteTable(name)

    # Rows ---------------------------------------------------------------------------------------------------

    def write(self, name: Any, frame: Frame) -> None:
        with self.table(name) as table:
            self._frames.write(table, self._family, frame.packed())

    def newest(self, name: Any, own: bytes, frame: Frame) -> bytes:
        """The times of rows, by the cell `own`; -1: there is no such row."""
        with self.table(name) as table:
            return bytes(self._frames.newest(table, self._family, own, frame.packed()))

    def scan(self, name: Any, own: bytes, columns: Sequence[bytes], *, whole: bool = True) -> Iterator[Frame]:
        """All rows. `whole`: with these columns."""
        with self.table(name) as table:
            answer = WHOLE_ROWS if whole else SCAN_ROWS
            rows = self._frames.scan(table, self._family, own, head(columns), whole, answer)
            try:
                while (data := rows.next(SCAN_ROWS, SCAN_BYTES)) is not None:
                    yield unpacked(bytes(data))
            finally:
                rows.close()

    def is_empty(self, name: Any) -> bool:
        with self.table(name) as table:
            rows = table.getScanner(self._hbase.client.Scan().setLimit(1))
            try:
                return rows.next() is None
            finally:
                rows.close()

    @contextlib.contextmanager
    def table(self, name: Any) -> Iterator[Any]:
        with _raised():
            table = self._connection().getTable(name)
            try:
                yield table
            finally:
                table.close()

    # --------------------------------------------------------------------------------------------------------

    @property
    def client(self) -> Any:
        """Java's package."""
        return self._hbase.client

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        with _raised():
            admin = self._connection().getAdmin()
            try:
                yield admin
            finally:
                admin.close()

    def _connection(self) -> Any:
        with self._guard:
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> Any:
        if not isinstance(self._frames, JavaClass):
            raise ConfigError(
                "The Spark session does not have HBase's client.",
                hint="Let Penstock start the session, or add the jars of `penstock docs sinks-hbase`.",
            )
        configuration = self._hbase.HBaseConfiguration.create()
        if self._options.site is not None:
            site = _file(self._options.site).absolute().as_uri()
            configuration.addResource(self._jvm.org.apache.hadoop.fs.Path(site))
        for name, value in self._options.client_properties().items():
            configuration.set(name, value)
        return self._hbase.client.ConnectionFactory.createConnection(configuration)

    def _byte_arrays(self, values: Sequence[bytes]) -> Any:
        arrays = self._jvm.java.lang.reflect.Array
        found = arrays.newInstance(self._jvm.java.lang.Class.forName("[B"), len(values))
        for place, value in enumerate(values):
            arrays.set(found, place, value)
        return found


CAUSES_MAX = 20
"""Causes of an error that are followed. Some errors are causes of each other."""


@contextlib.contextmanager
def _raised() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise ClusterError(_causes(error.java_exception)) from None
    except CapturedException as error:  # what PySpark makes of some of Java's
        raise ClusterError([[type(error).__name__], *_causes(error._origin)]) from None


def _causes(error: Any) -> list[list[str]]:
    found: list[list[str]] = []
    waiting = [error]
    while waiting and len(found) < CAUSES_MAX:
        one = waiting.pop(0)
        if one is None:
            continue
        found.append(classes_of(one.getClass()))
        if "RemoteException" in found[-1]:  # of a class that the client may not have
            found[-1].insert(0, re.split(r"[.$]", one.getClassName())[-1])
        if found[-1][0] == "RetriesExhaustedWithDetailsException":
            waiting += list(one.getCauses())[:3]
        waiting.append(one.getCause())
    return found


def classes_of(kind: Any) -> list[str]:
    """The simple names of a class of Java and of those above it, the narrowest first."""
    found = []
    while kind is not None:
        found.append(str(kind.getSimpleName()))
        kind = kind.getSuperclass()
    return found


def _file(site: Path) -> Path:
    found = site / SITE if site.is_dir() else site
    if not found.is_file():
        raise ConfigError(f"There is no file {found}.", hint="Correct `sink.site`.")
    return found
