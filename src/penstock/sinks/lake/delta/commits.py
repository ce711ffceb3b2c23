"""Finds our commits in Delta tables, and commits files without Spark.

A commit is recorded as Delta's transaction identifier. If a write by Spark made no log entry, it is recorded
as a property of the table. A commit without Spark starts from the snapshot in which it was found to be
missing. Delta refuses it if the same application has committed since. If the table was read for the commit,
Delta also refuses it if rows have been added or files removed since.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import InternalError
from penstock.sinks.base import COMPLETE_UNTIL, Commit
from penstock.sinks.lake.delta.checksum import Checksums
from penstock.sinks.lake.delta.restores import Restores
from penstock.sinks.lake.java_loops import JavaLoops
from penstock.sinks.lake.recorded_commit import property_of

_STEP_BITS = 16
"""Lowest bits of a transaction version, which have the step. An epoch has far fewer steps for a table."""
_ACTION = "org.apache.spark.sql.delta.actions.Action"

Action = dict[str, Any]
"""An entry of Delta's log in its JSON form."""


class Commits:
    def __init__(self, spark: SparkSession, pipeline: str) -> None:
        self._jvm: Any = spark._jvm
        self._pipeline = pipeline
        self._loops = JavaLoops(spark._jvm)
        self._from_json = self._loops.method(_ACTION, "fromJson", "java.lang.String")
        self.checksums = Checksums(spark)
        self._restores = Restores(spark, pipeline)

    def last(self, snapshot: Any, source: str) -> Commit | None:
        """The newest commit with this `Commit.source`. Those that somebody has undone do not count."""
        wanted = application(Commit(self._pipeline, 0, 0, source))
        to = self._restores.undone_after(snapshot)
        if to is None:
            version = self.checksums.transaction(snapshot, wanted)
        else:
            version = self._restores.newest_up_to(snapshot, to, wanted)
        written = commit_of(self._pipeline, version, source) if version is not None else None
        recorded = snapshot.metadata().configuration().get(property_of(source))
        noted = Commit.parse(recorded.get()) if recorded.isDefined() else None
        return max((one for one in (written, noted) if one is not None), default=None)

    def lacks_any(self, snapshot: Any) -> bool:
        """Whether somebody has undone commits of the pipeline, and nothing was committed since."""
        return self._restores.undone_after(snapshot) is not None

    def begin(self, snapshot: Any) -> Any:
        """Starts a transaction from a snapshot."""
        scala = self._jvm.scala
        return snapshot.deltaLog().startTransaction(scala.Option.empty(), scala.Option.apply(snapshot))

    def end(self, transaction: Any, commit: Commit | None, operation: Any, actions: Iterable[Action]) -> int:
        """Commits the transaction, and records `commit` if there is one. Returns the new version."""
        entries = list(actions)
        if commit is not None:
            # If a table limits how long identifiers are kept, Delta drops those without a time at once.
            at = {"version": transaction_version(commit), "lastUpdated": int(time.time() * 1000)}
            entries.append({"txn": {"appId": application(commit), **at}})
        lines = self._loops.lines([json.dumps(entry) for entry in entries])
        made = lines.map(self._loops.function(self._from_json)).toList()
        version = int(transaction.commit(self._jvm.PythonUtils.toSeq(made), operation))
        self._restores.made(transaction.snapshot(), version)
        return version

    def write(self, snapshot: Any, commit: Commit, actions: Iterable[Action], *, reads: bool) -> int:
        """Commits changes of files. `reads`: they depend on the rows in the table. Returns the new
        version."""
        transaction = self.begin(snapshot)
        # `txnVersion` does the same, but also looks up the version, for which it rebuilds the table's state.
        transaction.readTxn().addOne(application(commit))
        if reads:
            transaction.readWholeTable()
        return self.end(transaction, commit, self._update(commit), actions)

    def _update(self, commit: Commit) -> Any:
        """The operation that DESCRIBE HISTORY shows."""
        streaming = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")
        mode = self._jvm.org.apache.spark.sql.streaming.OutputMode.Update()
        said = self._jvm.scala.Option.apply(metadata_of(commit))
        return streaming(mode, commit.pipeline, commit.epoch, said)


def metadata_of(commit: Commit) -> str | None:
    """What the table's history shows as `userMetadata`. A property of the table would make each commit
    conflict with those of others."""
    if not commit.complete_until or commit.source:
        return None
    return json.dumps({COMPLETE_UNTIL: commit.complete_until})


def transaction_version(commit: Commit) -> int:
    """Epoch and step as one number. Later commits have greater ones."""
    if commit.step >= 1 << _STEP_BITS:
        raise InternalError(f"Step {commit.step} of an epoch does not fit into Delta's transaction version.")
    return (commit.epoch << _STEP_BITS) | commit.step


def commit_of(pipeline: str, version: int, source: str = "") -> Commit:
    """The commit for which `transaction_version` returned this version."""
    return Commit(pipeline, version >> _STEP_BITS, version & ((1 << _STEP_BITS) - 1), source)


def application(commit: Commit) -> str:
    """Delta's application id for the commit. Each source table of a target has its own. Spark replaces `${…}`
    in values of session options, so a name that contains it is hashed."""
    if "${" in commit.source:
        return f"penstock+{commit.pipeline}+{hashlib.sha256(commit.source.encode()).hexdigest()}"
    return f"penstock-{commit.pipeline}" + (f"-{commit.source}" if commit.source else "")
