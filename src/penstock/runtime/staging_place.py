"""Where a pipeline stages what tasks read: its own folder below `staging`, or the state directory."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path

from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.state import StateStore
from penstock.store import draft
from penstock.store.base import Store
from penstock.store.folder import StoreFolder

SCRATCH = "scratch"
"""The folder of files that only the run that wrote them needs. The next run removes those of a killed one."""


def open_staging(config: PipelineConfig, state: StateStore) -> Store:
    """The store of this pipeline's files. Makes no request to an object store. Several pipelines may have one
    `staging`, so each has a folder with its own uuid there. A directory is closed to other accounts, because
    the files contain rows. Raises `ConfigError` if files that are still needed are somewhere else."""
    _refuse_moved(config, state)
    store = config.store.open(folder_url(config, state))
    if store.location.kind == "local":
        root = Path(store.location.prefix)
        directory.make(root, "staging")
        if config.staging is None:
            _take_over_older(config.state, root)
    state.set_meta("staging", config.staging or "")
    return store


def folder_url(config: PipelineConfig, state: StateStore) -> str:
    """The URL of this pipeline's own folder."""
    if config.staging is None:
        return config.staging_url
    return f"{config.staging_url.rstrip('/')}/{config.name}-{state.uuid}"


def lease_place(config: PipelineConfig, state: StateStore) -> Store | None:
    """Where drivers of this pipeline on all machines find each other (`driver_lease.py`). None: the pipeline
    uses no store that another machine can reach, so locks in the state directory are enough."""
    if config.staging is not None:
        return config.store.open(folder_url(config, state))
    if (archive := config.relay_log.archive_url) is not None:
        return config.store.open(f"{archive.rstrip('/')}/drivers/{state.uuid}")
    return None


def sweep(config: PipelineConfig, store: Store) -> None:
    """Removes what killed runs and tasks left behind. To be called while no task of this pipeline runs."""
    StoreFolder(store, SCRATCH).remove()
    if config.staging is None:  # below a shared one, drivers of other machines write, too
        draft.sweep(Path(store.location.prefix), older_seconds=-inf)


def _take_over_older(state: Path, root: Path) -> None:
    """Moves the folders that older versions had in the state directory itself."""
    for name in ("chunks", "cascades"):
        with suppress(OSError):  # there is none, or a newer one
            (state / name).rename(root / name)


def _refuse_moved(config: PipelineConfig, state: StateStore) -> None:
    before, now = state.meta("staging") or "", config.staging or ""
    if before == now or not _is_needed(config, state):
        return
    raise ConfigError(
        f"`staging` is {now or 'the state directory'} now, but files that this pipeline still needs are in "
        f"{before or 'the state directory'}.",
        hint="Set it back, and let the pipeline run until no table is being read and no epoch is pending "
        "(`penstock status`). Then change it.",
    )


def _is_needed(config: PipelineConfig, state: StateStore) -> bool:
    tables = state.tables().values()
    if state.has_pending() or state.partials():
        return True
    if any(state.chunk_counts(one.table).get("staged") for one in tables):
        return True
    follows = config.cascades == "apply"
    return follows and any(one.reading or one.catches_up_from is not None for one in tables)
