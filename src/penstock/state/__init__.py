"""The state of a pipeline: one SQLite file, `state.sqlite`. The running pipeline writes it. Commands only
add signals and results of `verify`.

A durable step is one list of changes (`changes.py`), and every write is `commit(changes)`: the methods with
names of their own only make the list. `transaction` joins what several calls commit to one step.

Why SQLite: a plan, the tables it changes and the chunks it places become durable in one transaction, and a
kill -9 at any point leaves the state as it was before or after that transaction. `synchronous=FULL` makes a
commit survive a power loss. Other processes (`penstock status`, `verify`) can read the file while it is
written (WAL).

Everything else relies on this order:

1. a table's start is committed before its first chunk is read;
2. a plan is committed before any of its steps runs;
3. `applied` is committed after the sinks made every step durable.
"""

from __future__ import annotations

from penstock.state.chunks import Chunks
from penstock.state.epochs import Epochs
from penstock.state.signals import Signals


class StateStore(Chunks, Epochs, Signals):
    """Typed access to `state.sqlite`. Thread-safe."""


__all__ = ["StateStore"]
