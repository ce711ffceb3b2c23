"""Where a Delta table says which of our commits it holds, and how commits of our own are made.

The key is Delta's transaction identifier; where a write by Spark left no log entry to carry it, a property
of the table. A commit of our own is made from the very snapshot in which its key was not found. Delta refuses
it if the same application has committed since, or, where the table was read for it, if rows were added to
the table or files removed from it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import InternalError
from penstock.sinks.base import Commit
from penstock.sinks.lake.delta.checksum import Checksums

COMMIT = "penstock.commit"

_STEP_BITS = 16

Action = dict[str, Any]
"""An entry of Delta's log, as the log has it in JSON."""


class Commits:
    def __init__(self, spark: SparkSession, pipeline: str) -> None:
        self._jvm: Any = spark._jvm
        self._pipeline = pipeline
        self.checksums = Checksums(spark)

    def last(self, snapshot: Any, source: str) -> Commit | None:
        """The newest commit of a source table; empty: of the one source the target has."""
        version = self.checksums.transaction(snapshot, application(Commit(self._pipeline, 0, 0, source)))
        written = commit_of(self._pipeline, version, source) if version is not None else None
        recorded = snapshot.metadata().configuration().get(property_of(source))
        noted = Commit.parse(recorded.get()) if recorded.isDefined() else None
        return max((one for one in (written, noted) if one is not None), default=None)

    def begin(self, snapshot: Any) -> Any:
        """A transaction from a snapshot."""
        scala = self._jvm.scala
        return snapshot.deltaLog().startTransaction(scala.Option.empty(), scala.Option.apply(snapshot))

    def end(self, transaction: Any, commit: Commit | None, operation: Any, actions: Iterable[Any]) -> None:
        """Commits with the key, if there is one."""
        found = list(actions)
        if commit is not None:
            kind = self._jvm.org.apache.spark.sql.delta.actions.SetTransaction
            # Where a table bounds how long keys are kept, Delta forgets those without a time at once.
            written = self._jvm.scala.Option.apply(int(time.time() * 1000))
            found.append(kind(application(commit), transaction_version(commit), written))
        transaction.commit(self._jvm.PythonUtils.toSeq(found), operation)

    def write(self, snapshot: Any, commit: Commit, actions: Iterable[Action], *, reads: bool) -> None:
        """Commits changes of files. `reads`: what they are follows from what the table held."""
        transaction = self.begin(snapshot)
        # What `txnVersion` does beside looking the version up, for which it would rebuild the table's state.
        transaction.readTxn().addOne(application(commit))
        if reads:
            transaction.readWholeTable()
        parse = self._jvm.org.apache.spark.sql.delta.actions.Action.fromJson
        made = [parse(json.dumps(action)) for action in actions]
        self.end(transaction, commit, self._update(commit), made)

    def _update(self, commit: Commit) -> Any:
        """What the table's history calls it."""
        streaming = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")
        mode = self._jvm.org.apache.spark.sql.streaming.OutputMode.Update()
        return streaming(mode, commit.pipeline, commit.epoch, self._jvm.scala.Option.empty())


def transaction_version(commit: Commit) -> int:
    """Epoch and step as one number that grows with them."""
    if commit.step >= 1 << _STEP_BITS:
        raise InternalError(
            f"Step {commit.step} of an epoch: more than Delta's transaction version has room for."
        )
    return (commit.epoch << _STEP_BITS) | commit.step


def commit_of(pipeline: str, version: int, source: str = "") -> Commit:
    return Commit(pipeline, version >> _STEP_BITS, version & ((1 << _STEP_BITS) - 1), source)


def application(commit: Commit) -> str:
    """The program, in Delta's sense, whose versions grow: each source table of a target is one. It is an
    option of the session, in whose values Spark replaces `${…}`."""
    if "${" in commit.source:
        return f"penstock+{commit.pipeline}+{hashlib.sha256(commit.source.encode()).hexdigest()}"
    return f"penstock-{commit.pipeline}" + (f"-{commit.source}" if commit.source else "")


def property_of(source: str) -> str:
    return f"{COMMIT}.{source}" if source else COMMIT
