"""Where the tables of a test run are: `pytest --lake-in rest-s3` runs the same tests on a REST catalog, with
Iceberg's tables on S3; `delta-s3` has Delta's there. Such places need jars that most tests do not, so not
every session has them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import STDOUT, run

from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.iceberg.catalog_options import JdbcCatalog
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.testing.faulty_proxy import Fault, FaultyProxy
from penstock.testing.servers.catalogs import HiveMetastore, Nessie
from penstock.testing.servers.hdfs import HdfsCluster
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto, S3Proxy

DIRECTORY, JDBC_S3, REST_S3, HIVE, FAULTY_S3 = "directory", "jdbc-s3", "rest-s3", "hive", "faulty-s3"
DELTA_S3, FAULTY_DELTA_S3, HDFS = "delta-s3", "faulty-delta-s3", "hdfs"
S3 = "s3"
"""Iceberg as in `jdbc-s3` and Delta as in `delta-s3`, in one session."""
PLACES = (DIRECTORY, JDBC_S3, REST_S3, HIVE, FAULTY_S3, DELTA_S3, FAULTY_DELTA_S3, S3, HDFS)
ROOT = Path(__file__).resolve().parents[1]


def catalog(**options: object) -> IcebergOptions:
    return IcebergOptions.model_validate({"type": "iceberg", "catalog": options})


def more_jars_of(options: IcebergOptions) -> list[IcebergOptions]:
    """Sinks whose jars a session also has, so that one session can try several databases."""
    if not isinstance(options.catalog, JdbcCatalog):
        return []
    return [catalog(type="jdbc", uri=f"jdbc:{name}:", warehouse="/tmp") for name in ("mysql", "postgresql")]


@contextmanager
def iceberg_in(place: str, root: Path) -> Iterator[IcebergOptions]:
    """The options of the sink for tables in that place, whose servers run while the block runs. The catalog
    is called `lake`. `root`: for what is on the local disk."""
    if place in (DIRECTORY, DELTA_S3, FAULTY_DELTA_S3):
        yield IcebergOptions(path=root / "iceberg")
    elif place == HDFS:
        with HdfsCluster() as hdfs:
            yield catalog(type="hadoop", warehouse=f"{hdfs.url}/iceberg")
    elif place == HIVE:
        with HiveMetastore() as metastore:
            yield catalog(type="hive", uri=metastore.uri, warehouse=str(metastore.warehouse),
                          properties=metastore.iceberg_properties)  # fmt: skip
    else:
        with Moto() as store:
            store.make_bucket("lake")
            if place == REST_S3:
                with Nessie(store, "lake", vends=True) as nessie:
                    yield catalog(type="rest", uri=nessie.uri, warehouse=nessie.WAREHOUSE)
            elif place == FAULTY_S3:
                with FaultyProxy(store.host, store.port) as proxy:
                    plan_faults(proxy)
                    yield jdbc(root, {**store.iceberg_properties, "s3.endpoint": proxy.url})
                    assert proxy.faults > len(proxy.requests) / 100 or len(proxy.requests) < 200
            else:
                yield jdbc(root, store.iceberg_properties)


@contextmanager
def delta_in(place: str, root: Path) -> Iterator[DeltaOptions]:
    """The same for the sink `delta`."""
    if place == HDFS:
        with HdfsCluster() as hdfs:
            yield DeltaOptions(type="delta", path=f"{hdfs.url}/delta")
        return
    if place not in (DELTA_S3, FAULTY_DELTA_S3, S3):
        yield DeltaOptions(type="delta", path=root)
        return
    # Moto compares the condition of a put before the put, not with it.
    with S3Proxy() as store:
        store.make_bucket("lake")
        if place in (DELTA_S3, S3):
            yield delta_at(store.url)
            return
        with FaultyProxy(store.host, store.port) as proxy:
            plan_faults(proxy)
            yield delta_at(proxy.url)
            assert proxy.faults > len(proxy.requests) / 100 or len(proxy.requests) < 200


def delta_at(endpoint: str) -> DeltaOptions:
    store = {"endpoint": endpoint, "access_key_id": KEY_ID, "secret_access_key": SECRET}
    return DeltaOptions.model_validate({"type": "delta", "path": "s3://lake/delta", "store": store})


def jdbc(root: Path, properties: Mapping[str, str]) -> IcebergOptions:
    uri = f"jdbc:sqlite:{root / 'catalog.db'}"
    return catalog(type="jdbc", uri=uri, warehouse="s3://lake/wh", properties=dict(properties))


def plan_faults(proxy: FaultyProxy, *, seed: int = 1) -> None:
    """One request in twenty-five fails, in each of the ways in which stores and networks fail."""
    chance = random.Random(seed)
    faults = [Fault("answer"), Fault("answer", status=500, code="InternalError"), Fault("lost answer"),
              Fault("reset in the middle"), Fault("slow", seconds=0.3)]  # fmt: skip
    for fault in faults:
        proxy.plan(fault, when=lambda request: chance.random() < 0.008, times=10**9)


def run_in(place: str, *arguments: str, seconds: float, quick: bool = False) -> str:
    """Runs tests there, in a process of their own, because a process has one Spark session. Returns what
    pytest printed, and fails if a test failed or none ran. `quick`: only quick tests, with a session that is
    made for them (`tests/conftest.py`)."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--lake-in", place]
    command += ["-m", "not slow"] if quick else []
    done = run(
        [*command, *arguments], cwd=ROOT, stdout=-1, stderr=STDOUT, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
