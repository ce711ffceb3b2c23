"""The folder of a pipeline's staged files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.test_processes import KILLED

from penstock import config as configuration
from penstock.runtime.staging_place import sweep


@pytest.mark.parametrize("shared", [False, True])
def test_what_killed_tasks_left_goes_unless_another_machine_may_be_writing_it(
    shared: bool, tmp_path: Path
) -> None:
    place = tmp_path / "shared" if shared else tmp_path / "state" / "staging"
    document = {
        "name": "p", "source": {"host": "127.0.0.1", "user": "u"}, "tables": ["d.*"], "state": "state",
        "sink": {"type": "iceberg", "path": "lake"}, **({"staging": str(place)} if shared else {}),
    }  # fmt: skip
    config = configuration.parse(document, where="p.yaml", base=tmp_path)
    place.mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", KILLED, place.as_uri()], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    drafts = place / ".penstock" / "drafts"
    (left,) = drafts.iterdir()
    sweep(config, config.store.open(place.as_uri()))
    assert left.exists() is shared
