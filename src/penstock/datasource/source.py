"""The data source `penstock`, as Spark sees it. Spark makes it in processes of its own, from its options.

Every Spark process with this package imports this module when it starts, so it imports little.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # type: ignore[import-not-found]

    TELLS_TRIGGER = True
    """Whether Spark says that a query has the trigger `availableNow`, and where the next batch begins: from
    4.2 on."""
except ImportError:
    TELLS_TRIGGER = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.datasource.options import CdcOptions
    from penstock.datasource.relay import RelayStream
    from penstock.datasource.server import ServerStream
    from penstock.model.schema import TableSchema


BEGIN_ANEW = "begin anew, with a new folder in `state` and a new checkpoint."
"""Hint for losses that cannot be repaired."""


@contextlib.contextmanager
def _with_own_hints() -> Iterator[None]:
    """Errors of the block name the cure for a query, which has no pipeline file."""
    from penstock.errors import START_OVER, PenstockError

    try:
        yield
    except PenstockError as error:
        error.hint = error.hint.replace(START_OVER, BEGIN_ANEW)
        raise


class PenstockSource(DataSource):
    """Changes of tables of a database. Options: docs/spark-source.md."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @_with_own_hints()
    def schema(self) -> StructType:
        return _spark_schema(self._parsed)

    @_with_own_hints()
    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._parsed, schema)

    @property
    def _parsed(self) -> CdcOptions:
        from penstock.datasource.options import parse

        return parse(self.options)


class MySqlCdc(PenstockSource):
    """The same, under the name that it had when MySQL was the only source."""

    @classmethod
    def name(cls) -> str:
        return "mysql_cdc"


class BatchReader(DataSourceReader):
    """Reads a part of the log that is already there."""

    def __init__(self, options: CdcOptions, schema: StructType) -> None:
        self._options = options
        _refuse_own(schema, options)

    @_with_own_hints()
    def partitions(self) -> Sequence[InputPartition]:
        from penstock.datasource.log import past

        return past(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads changes as they arrive. Spark keeps one of these for offsets, and sends a copy to each
    task. Only the first one opens the stream."""

    def __init__(self, options: CdcOptions, schema: StructType) -> None:
        from penstock.datasource.options import needs_state

        needs_state(options)
        self._options = options
        self._schema = schema
        self._stream: ServerStream | RelayStream | None = None
        self._asked = False
        """Whether Spark has asked for something that shows that more calls of `latestOffset` will follow."""
        self._end: int | None = None
        """Where a query with the trigger `availableNow` ends."""

    def __getstate__(self) -> dict[str, Any]:
        options = self._options.model_copy(update={"server": {}})  # tasks need no server
        return {**self.__dict__, "_options": options, "_stream": None}

    # Spark 4.1 does not say that the trigger is `availableNow`. With it, Spark calls `latestOffset` once, and
    # the answer is the query's end. With any other trigger, a new query asks for `initialOffset` first, and
    # one that was killed in a batch for that batch's partitions.

    @_with_own_hints()
    def initialOffset(self) -> dict[str, Any]:
        self._asked = True
        stream = self._opened()
        return {"pipeline": stream.pipeline, "offset": stream.first()}

    @_with_own_hints()
    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._opened().plan_until_now(is_all=True)

    @_with_own_hints()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        stream = self._opened()
        first, self._asked = not self._asked, True
        if start is not None and (self._end is None or first):
            stream.has(start["offset"])
        if start is not None and self._end is not None:
            offset = stream.step(start["offset"], self._end)
        elif first and not TELLS_TRIGGER:
            offset = stream.plan_until_now(is_all=False)
        else:
            offset = stream.plan()
        return {"pipeline": stream.pipeline, "offset": offset}

    @_with_own_hints()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._asked = self._asked or start != end  # a query that goes on asks for those between equal offsets
        stream = self._opened()
        self._refuse_another(stream.pipeline, end)
        return stream.partitions(start["offset"], end["offset"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)

    @_with_own_hints()
    def commit(self, end: dict[str, Any]) -> None:
        self._opened().done(end["offset"])

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _opened(self) -> ServerStream | RelayStream:
        if self._stream is None:
            if self._options.relay_log is None:
                from penstock.datasource.server import ServerStream

                self._stream = ServerStream(self._options)
            else:
                from penstock.datasource.relay import opened

                self._stream = opened(self._options)
            _refuse_own(self._schema, self._options)
        return self._stream

    def _refuse_another(self, pipeline: str, offset: dict[str, Any]) -> None:
        from penstock.errors import ConfigError

        if offset.get("pipeline") != pipeline:
            raise ConfigError(
                f"The checkpoint of this query belongs to another `state` than {self._options.state}.",
                hint="Give the query the `state` that it had, or begin anew with new folders for both.",
            )


def _definition(options: CdcOptions) -> TableSchema:
    if options.relay_log is None and options.server:
        from penstock.datasource.server import definition

        return definition(options)
    from penstock.datasource.relay import definition

    return definition(options)


def _read(partition: InputPartition | None, options: CdcOptions) -> Iterator[pa.RecordBatch]:
    if partition is None:
        return  # Spark asks for this if there are no partitions
    with _with_own_hints():
        if options.is_envelope:
            from penstock.datasource.envelope import read_enveloped

            yield from read_enveloped(partition, options)
        else:
            from penstock.datasource.partitions import read

            yield from read(partition)


def _spark_schema(options: CdcOptions) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.datasource.envelope import envelope_schema
    from penstock.datasource.partitions import arrow_schema

    if options.is_envelope:
        return from_arrow_schema(envelope_schema(options), prefer_timestamp_ntz=True)
    return from_arrow_schema(arrow_schema(_definition(options), options.types), prefer_timestamp_ntz=True)


def _refuse_own(schema: StructType, options: CdcOptions) -> None:
    """Raises `ConfigError` for columns that are not those of the query."""
    from penstock.errors import ConfigError

    if schema != _spark_schema(options):
        raise ConfigError(
            f"The query was loaded with other columns than {options.what} has now.",
            hint="Load it again, without a schema of your own.",
        )
