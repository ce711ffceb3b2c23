"""Private places for what a pipeline writes: a directory, or an S3 server, for Iceberg with a catalog beside
it; or a Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.errors import ConfigError
from penstock.testing.servers.catalogs import NESSIE_JAVA_MIN, Nessie, java_of
from penstock.testing.servers.kafka import KafkaCluster
from penstock.testing.servers.s3 import KEY_ID, SECRET, S3Proxy

LakeKind = Literal["local", "s3"]
BUCKET = "lake"


@dataclass(frozen=True)
class Lake:
    sink: dict[str, Any]
    """The section `sink` of the pipeline file."""
    warehouse: str
    said: str
    """A line for the terminal that says what was started. Empty: nothing was."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Sections of the pipeline file that put what tasks need into the same store, for clusters."""


@contextmanager
def lake(kind: LakeKind, sink: str, folder: Path) -> Iterator[Lake]:
    """The servers run while the block runs. The sink `kafka` gets a broker of its own."""
    if sink == "kafka":
        with KafkaCluster() as brokers:
            section = {"type": sink, "bootstrap": brokers.bootstrap, "format": "json", "partitions": 4}
            yield Lake(section, brokers.bootstrap, f"Kafka on {brokers.bootstrap}")
        return
    if kind == "local":
        warehouse = folder / "warehouse"
        yield Lake({"type": sink, "path": str(warehouse)}, str(warehouse), "")
        return
    with S3Proxy() as store:
        store.make_bucket(BUCKET)
        where = f"S3 on {store.url}"
        shared = {
            "store": {"endpoint": store.url, "access_key_id": KEY_ID, "secret_access_key": SECRET},
            "staging": f"s3://{BUCKET}/staging",
            "relay_log": {"archive": f"s3://{BUCKET}/relay-log"},
        }
        if sink == "delta":
            place = f"s3://{BUCKET}/warehouse"
            yield Lake({"type": sink, "path": place, "store": shared["store"]}, place, where, shared)
            return
        try:
            java_of(NESSIE_JAVA_MIN)
        except ConfigError:
            warehouse_url = f"s3://{BUCKET}/warehouse"
            catalog = {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{folder / 'catalog.sqlite'}",
                "warehouse": warehouse_url,
                "properties": store.iceberg_properties,
            }
            said = f"{where}, catalog in SQLite (a REST catalog needs Java {NESSIE_JAVA_MIN} or newer)"
            yield Lake({"type": sink, "catalog": catalog}, warehouse_url, said, shared)
            return
        with Nessie(store, BUCKET) as nessie:
            catalog = {
                "type": "rest",
                "uri": nessie.uri,
                "warehouse": nessie.WAREHOUSE,
                "properties": store.iceberg_properties,
            }
            said = f"{where}, REST catalog on {nessie.uri}"
            yield Lake({"type": sink, "catalog": catalog}, f"s3://{BUCKET}/{nessie.WAREHOUSE}", said, shared)
