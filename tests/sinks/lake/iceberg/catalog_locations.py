"""Where files of targets are in an object store, and what if one is missing. `test_catalogs.py` runs this
there."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few, summary, target
from tests.sinks.lake.iceberg.test_small_commit import iceberg as form_of
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.model.schema import TableId
from penstock.sinks.base import Missing
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.iceberg.small_commit import SMALL
from penstock.sinks.lake.iceberg.table_options import TableShape


def test_files_are_where_the_location_says(spark: SparkSession, iceberg: IcebergOptions) -> None:
    entry = {
        "match": "shop.*",
        "location": "s3://lake/elsewhere/{database}/{table}",
        "partition_by": "name",
        "sort_by": "id desc",
    }
    config = iceberg.model_copy(update={"tables": (TableShape.model_validate(entry),)})
    it = Place(spark, config, table=TableId("shop", "located")).create()
    place = "s3://lake/elsewhere/shop/located"
    assert target(it).location() == place
    it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 1)), it.commit(1))
    it.sink.merge(it.table, few(it, (1, "b", False, 2)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true" and it.rows() == [(1, "b", 2), (2, "b", 1)]
    it.sink.merge(it.table, newer(it, (2, None, True, 3), (3, "c", False, 3)), it.key, it.commit(3))
    assert by_files(it) and it.rows() == [(1, "b", 2), (3, "c", 3)]
    paths = spark.sql(f"SELECT file_path FROM {it.sink.name(it.table)}.all_files").collect()
    assert paths and all(one[0].startswith(f"{place}/data/") for one in paths)
    it.sink.drop(it.table)
    assert not form_of(it)._catalog.exists(form_of(it)._levels(it.table))


def test_a_target_whose_metadata_is_gone_is_made_anew(spark: SparkSession, iceberg: IcebergOptions) -> None:
    it = Place(spark, iceberg, table=TableId("shop", "gone")).create()
    it.sink.append(it.table, few(it, (1, "a", False, 1)), it.commit(1))
    found = target(it)
    found.io().deleteFile(found.operations().current().metadataFileLocation())
    with pytest.raises(Py4JJavaError, match="Location does not exist"):
        it.sink.open(it.table)
    it.sink.clear(it.table)
    assert isinstance(it.sink.open(it.table), Missing)
    it.create()
    it.sink.append(it.table, few(it, (2, "b", False, 2)), it.commit(2))
    assert it.rows() == [(2, "b", 2)]
