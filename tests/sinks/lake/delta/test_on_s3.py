"""Delta tables on a real S3 server, in a process of their own. `tests/sinks/lake/test_on_s3.py` is quick."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lake_catalogs import DELTA_S3, FAULTY_DELTA_S3, run_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3100)]  # more than `run_in` gives them

CONFORMANCE = "tests/sinks/conformance"
ON_S3 = str(Path(__file__).with_name("on_s3.py"))


def test_a_table_on_s3_lives_through_every_kind_of_write() -> None:
    writes = f"{CONFORMANCE}/test_tables.py::test_a_table_lives_through_every_kind_of_write[delta]"
    run_in(DELTA_S3, writes, seconds=400, quick=True)


def test_every_version_of_a_table_on_s3_has_one_writer() -> None:
    run_in(DELTA_S3, ON_S3, seconds=400)


def test_the_sink_keeps_its_promises_on_s3() -> None:
    run_in(DELTA_S3, CONFORMANCE, "-k", "delta", seconds=3000)


def test_two_sparks_may_write_one_table() -> None:
    run_in(DELTA_S3, str(Path(__file__).with_name("strangers.py")), seconds=500)


def test_every_mistake_is_told_with_the_cure() -> None:
    run_in(DELTA_S3, str(Path(__file__).with_name("store_mistakes.py")), seconds=900)


def test_kills_and_faults_of_the_store_together_lose_and_double_nothing() -> None:
    run_in(FAULTY_DELTA_S3, f"{CONFORMANCE}/test_kills.py", "-k", "delta", seconds=3000)
