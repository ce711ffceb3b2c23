"""What `penstock doctor` finds out about `staging`: it writes, reads, lists and deletes an object there, as
tasks do."""

from __future__ import annotations

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.sources.preflight import Finding
from penstock.store.probe import check_conditions, check_listing


def staging_findings(config: PipelineConfig) -> list[Finding]:
    """One finding, or none if `staging` is the state directory. Leaves nothing behind."""
    if config.staging is None:
        return []
    try:
        store = config.store.open(config.staging_url)
        check_conditions(store)
        check_listing(store)
    except PenstockError as error:
        message = f"`staging`: {error.message} {error.hint}".strip()
        return [Finding("error", "staging", config.staging, message)]
    message = f"{store.location} can be written, read, listed and deleted in"
    return [Finding("ok", "staging", config.staging, message)]
