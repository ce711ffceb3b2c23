"""`penstock doctor` uses `staging` as tasks do, and tells what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import config as configuration
from penstock.commands.doctor_staging import staging_findings
from penstock.config import PipelineConfig
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto, S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with Moto() as server:
        server.make_bucket("lake")
        yield server


def config_of(staging: str | None, **store: Any) -> PipelineConfig:
    document = {"name": "a", "source": {"user": "u"}, "tables": ["shop.*"], "state": "state"}
    return configuration.parse({**document, "sink": {"path": "lake"}, "staging": staging, "store": store})


def keys(server: S3Server) -> dict[str, str]:
    return {"endpoint": server.url, "access_key_id": KEY_ID, "secret_access_key": SECRET}


def test_the_state_directory_needs_no_check() -> None:
    assert staging_findings(config_of(None)) == []


def test_staging_that_works_is_left_as_it_was(server: S3Server, tmp_path: Path) -> None:
    staging = config_of("s3://lake/staging", **keys(server))
    [finding] = staging_findings(staging)
    assert (finding.level, finding.check) == ("ok", "staging")
    assert list(staging.store.open("s3://lake").objects()) == []
    [finding] = staging_findings(config_of(str(tmp_path / "staging")))
    assert finding.level == "ok"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"] == []


def test_a_bucket_that_does_not_exist_is_told_with_the_cure(server: S3Server) -> None:
    [finding] = staging_findings(config_of("s3://nowhere/staging", **keys(server)))
    assert finding.level == "error"
    assert "s3://nowhere/staging" in finding.message and "Create the bucket" in finding.message
    assert SECRET not in finding.message


def test_a_directory_that_cannot_be_written_is_told_with_the_cure() -> None:
    [finding] = staging_findings(config_of("/proc/nowhere"))
    assert finding.level == "error"
    assert "/proc/nowhere" in finding.message and "Check the rights" in finding.message


def test_the_archive_of_the_relay_log_is_tried_too(server: S3Server) -> None:
    for bucket, level in (("lake", "ok"), ("nowhere", "error")):
        document = {"name": "a", "source": {"user": "u"}, "tables": ["shop.*"], "state": "state"}
        relay_log = {"archive": f"s3://{bucket}/log"}
        sections = {"sink": {"path": "lake"}, "relay_log": relay_log, "store": keys(server)}
        [finding] = staging_findings(configuration.parse({**document, **sections}))
        assert (finding.level, finding.check) == (level, "relay_log.archive")
        assert relay_log["archive"] in finding.message
