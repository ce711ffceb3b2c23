"""An Iceberg table as Penstock writes it: its main branch, or another one (`branch` in `sink.tables`).

`OnBranch` stands for a table wherever one is read or written. Its newest snapshot is that of the branch, and
every change that it begins goes to the branch. So no code that writes can forget the branch.

A branch begins at the newest snapshot of main, with the first commit to it. If it is dropped after it was
published, it begins there again.
"""

from __future__ import annotations

from typing import Any


class OnBranch:
    """A Java `Table` on a branch. Whatever is not defined here is the table's own."""

    def __init__(self, table: Any, branch: str) -> None:
        self._table = table
        self.branch = branch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # py4j would take it for a collection
        return getattr(self._table, name)

    @property
    def branch_exists(self) -> bool:
        return self._table.refs().get(self.branch) is not None

    def create_branch(self) -> None:
        """Creates the branch if it is missing, because Spark writes only to existing branches."""
        if not self.branch_exists:
            self._table.manageSnapshots().createBranch(self.branch).commit()

    def currentSnapshot(self) -> Any:
        found = self._table.refs().get(self.branch)
        return self._table.currentSnapshot() if found is None else self._table.snapshot(found.snapshotId())

    def newScan(self) -> Any:
        scan = self._table.newScan()
        return scan.useRef(self.branch) if self.branch_exists else scan

    def newTransaction(self) -> TransactionOnBranch:
        return TransactionOnBranch(self._table.newTransaction(), self.branch)

    def newAppend(self) -> Any:
        return self._table.newAppend().toBranch(self.branch)

    def newDelete(self) -> Any:
        return self._table.newDelete().toBranch(self.branch)

    def newRowDelta(self) -> Any:
        return self._table.newRowDelta().toBranch(self.branch)

    def newRewrite(self) -> Any:
        return self._table.newRewrite().toBranch(self.branch)


class TransactionOnBranch:
    """A Java `Transaction` whose changes of rows go to a branch."""

    def __init__(self, transaction: Any, branch: str) -> None:
        self._transaction = transaction
        self._branch = branch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._transaction, name)

    def table(self) -> OnBranch:
        return OnBranch(self._transaction.table(), self._branch)

    def newAppend(self) -> Any:
        return self._transaction.newAppend().toBranch(self._branch)

    def newDelete(self) -> Any:
        return self._transaction.newDelete().toBranch(self._branch)

    def newRowDelta(self) -> Any:
        return self._transaction.newRowDelta().toBranch(self._branch)
