"""Which archives of Spark's classes are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.spark import classes


def test_an_archive_in_use_outlives_newer_ones_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    ours = classes.archive([])
    ours.parent.mkdir(parents=True)
    for age, path in enumerate(
        [ours.with_name(f"spark-{n}.jsa") for n in range(classes.ARCHIVES_MAX)] + [ours]
    ):
        path.touch()
        os.utime(path, (1e9 - age, 1e9 - age))

    assert str(ours) in classes.java_options([])
    classes.forget_unused(ours.parent)

    kept = sorted(path.name for path in ours.parent.iterdir())
    assert ours.name in kept
    assert len(kept) == classes.ARCHIVES_MAX
    assert f"spark-{classes.ARCHIVES_MAX - 1}.jsa" not in kept
