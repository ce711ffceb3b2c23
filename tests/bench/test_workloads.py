"""The logs of the benchmark: each holds what its server said it changed, as others read it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.log import cache_name, running
from bench.measure import Figure
from bench.ours import Workplace
from bench.workloads import WORKLOADS

from bench import peers_log
from penstock.testing import artifacts

SCALE = 0.001


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_penstock_and_a_peer_find_in_the_log_what_the_server_said_it_changed(
    name: str, tmp_path: Path
) -> None:
    with running(SCALE, WORKLOADS[name]) as log:
        assert log.counts.inserts and (log.counts.updates or log.counts.deletes)
        assert log.log_bytes > 10 * log.counts.changes
        ours = list(Workplace(log, tmp_path, 1).decode_figures())
        theirs = list(peers_log.figures(log, ["python-mysql-replication"]))
    shutil.rmtree(artifacts.cache_root() / cache_name(WORKLOADS[name], SCALE))
    assert len(ours) >= 4 and len(theirs) == 1
    for outcome in [*ours, *theirs]:
        # Counts of each kind were compared, rows left and gone too: otherwise there would be no figure.
        assert isinstance(outcome, Figure), outcome
        assert outcome.changes == log.counts.changes


def test_names_and_descriptions_tell_workloads_apart() -> None:
    assert next(iter(WORKLOADS)) == "orders"
    assert len({workload.about for workload in WORKLOADS.values()}) == len(WORKLOADS) == 8
    assert len(WORKLOADS["many_tables"].compared(1.0)) == 1_000
