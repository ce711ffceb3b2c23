"""What errors of HBase mean, against the classes that its client has, and a real one of the server."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.hbase.test_sink import Make, admin, case

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.hbase.cluster import Cluster, ClusterError, classes_of
from penstock.sinks.hbase.faults import explained

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
__all__ = ["case"]

_PASSES = re.compile(
    r"Stopped|TooBusy|Timeout|Lease|Scanner|Quota|SpaceLimiting|Throttling|Closed|NotAllMeta|NoServerFor|"
    r"Concurrent|TableNot(Dis|En)abled"
)
_CONNECTING = re.compile(
    r"Denied|BadAuth|FatalConnection|EmptyServiceName|UnknownService|Unsupported|WrongVersion"
)
"""Of the account, or of what client and server speak with each other."""


def test_a_class_of_the_client_that_says_not_to_retry_is_refused_unless_it_passes(case: Make) -> None:
    jvm: Any = case().spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def loaded(name: str) -> Any:
        return jvm.java.lang.Class.forName(name, False, loader)

    base = loaded("org.apache.hadoop.hbase.DoNotRetryIOException")
    source = base.getProtectionDomain().getCodeSource().getLocation().getPath()
    with zipfile.ZipFile(Path(source)) as jar:
        names = [one[:-6].replace("/", ".") for one in jar.namelist() if one.endswith("Exception.class")]
    kinds = [loaded(one) for one in names if one.startswith("org.apache.hadoop.hbase.")]
    below = [classes_of(kind) for kind in kinds if base.isAssignableFrom(kind)]
    assert len(below) > 40
    found: dict[str, set[str]] = {}
    for classes in below:
        causes = ClusterError([["RetriesExhaustedException", "IOException"], classes])
        error = explained(causes, "x", TableId("d", "t"))
        found.setdefault(type(error).__name__, set()).add(classes[0])
    connecting = {one[0] for one in below if _CONNECTING.search(one[0])}
    passing = {one[0] for one in below if _PASSES.search(one[0])}
    assert found["TargetRefused"] == connecting
    assert found["TransientError"] == passing
    assert found["TableError"] == {one[0] for one in below} - connecting - passing
    assert found["TableError"] >= {"RowTooBigException", "RequestTooBigException"}


def test_a_row_that_the_server_calls_too_big_parks_its_table(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10))

    def limit(cluster: Cluster, found: Any, name: Any) -> None:
        cluster.mark(found.getDescriptor(name), {"hbase.table.max.rowsize": "1"})

    admin(it, limit)
    with pytest.raises(TableError, match="RowTooBigException"):
        it.merge(2, (1, "A", "B", False, 20))
