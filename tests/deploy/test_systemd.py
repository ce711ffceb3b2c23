"""The example of a systemd unit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.kubernetes import ROOT

UNIT = ROOT / "deploy" / "systemd" / "penstock@.service"
PROGRAM = "/opt/penstock/bin/penstock"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit_without_a_remark(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert PROGRAM in text and "\nUser=penstock\n" in text
    unit = tmp_path / UNIT.name
    # systemd looks for the program, which is not installed here.
    unit.write_text(text.replace(PROGRAM, sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMod=mixed"))
    assert "KillMod" in subprocess.run(command, capture_output=True, text=True, timeout=60).stderr


def test_the_unit_waits_longer_than_a_run_may_take_to_end() -> None:
    lines = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line)
    assert lines["TimeoutStopSec"] == "60s" and lines["ExecStart"].startswith(f"{PROGRAM} run /etc/penstock/")
