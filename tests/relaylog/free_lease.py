"""Frees the lease of an archive whose receiver is known to have ended, so that a test need not wait."""

from __future__ import annotations

from dataclasses import replace

from penstock.relaylog.archive_lease import LEASE
from penstock.store.base import Store
from penstock.store.lease import read


def free_lease(store: Store) -> None:
    held, _ = read(store, LEASE)
    store.put(LEASE, replace(held, stopped=True).to_bytes())
