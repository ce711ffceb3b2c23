"""What `penstock doctor` finds out about `staging` and the relay log's archive: it writes, reads, lists and
deletes an object there, as tasks and the receiver do."""

from __future__ import annotations

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.sources.preflight import Finding
from penstock.store.probe import check_conditions, check_listing


def staging_findings(config: PipelineConfig) -> list[Finding]:
    """One finding for `staging`, and one for `relay_log.archive`, if they are set. Leaves nothing behind."""
    found = []
    if config.staging is not None:
        found.append(_tried(config, "staging", config.staging, config.staging_url))
    if config.relay_log.archive is not None:
        url = config.relay_log.archive_url or ""
        found.append(_tried(config, "relay_log.archive", config.relay_log.archive, url))
    return found


def _tried(config: PipelineConfig, option: str, subject: str, url: str) -> Finding:
    try:
        store = config.store.open(url)
        check_conditions(store)
        check_listing(store)
    except PenstockError as error:
        message = f"`{option}`: {error.message} {error.hint}".strip()
        return Finding("error", option, subject, message)
    message = f"{store.location} can be written, read, listed and deleted in"
    return Finding("ok", option, subject, message)
