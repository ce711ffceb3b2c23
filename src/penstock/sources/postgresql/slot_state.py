"""What the server says of a replication slot, in words for the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.printable import size_text
from penstock.sources.postgresql.log_position import lsn_of

FAILOVER = 170_000
"""The version from which on slots are copied to standbys."""

_SLOT = """
SELECT to_jsonb(s), CASE WHEN NOT pg_catalog.pg_is_in_recovery()
                    THEN pg_catalog.pg_current_wal_insert_lsn()::text END
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s
"""
_WHY = {
    "wal_removed": "the receiver was away for longer than the server may keep its log for it "
    "(`max_slot_wal_keep_size`)",
    "idle_timeout": "the receiver was away for longer than `idle_replication_slot_timeout`",
    "rows_removed": "rows of the catalog that it needs were removed (`hot_standby_feedback` was off)",
    "wal_level_insufficient": "`wal_level` of the primary was not `logical` any more",
}
"""Why slots become invalid (`pg_replication_slots.invalidation_reason`, version 17 and newer)."""


@dataclass(frozen=True)
class SlotState:
    """`fields`: of the view `pg_replication_slots`, which has more with each version. `written`: the end of
    the server's log; None: it is a standby."""

    fields: dict[str, Any]
    written: int | None

    @property
    def kept_bytes(self) -> int | None:
        """How much of its log the server keeps for the slot. None: unknown."""
        needed = self.fields["restart_lsn"]
        return None if needed is None or self.written is None else max(0, self.written - lsn_of(needed))

    @property
    def confirmed(self) -> int | None:
        """Nothing before this position is sent any more."""
        text = self.fields["confirmed_flush_lsn"]
        return None if text is None else lsn_of(text)

    @property
    def pid(self) -> int | None:
        """The server's process that uses it."""
        pid: int | None = self.fields["active_pid"]
        return pid

    @property
    def is_lost(self) -> bool:
        return self.fields["wal_status"] == "lost" or self.confirmed is None

    @property
    def safe_bytes(self) -> int | None:
        """How much log the server can write before the slot may be lost. None: it is kept without limit."""
        size: int | None = self.fields["safe_wal_size"]
        return size

    @property
    def is_copied(self) -> bool:
        """Whether standbys have a copy, with which it goes on after a promotion."""
        return bool(self.fields.get("failover"))

    @property
    def is_ready_copy(self) -> bool:
        """Whether it is a standby's copy that a promotion would keep."""
        return bool(self.fields.get("synced")) and not self.fields["temporary"] and not self.is_lost

    def why_lost(self) -> str:
        reason = self.fields.get("invalidation_reason") or "wal_removed"
        return _WHY.get(reason, f"the server says {reason}")

    def report(self) -> dict[str, Any]:
        """For the receiver's status."""
        known = ("slot_name", "wal_status", "invalidation_reason", "inactive_since", "failover")
        return {name: self.fields.get(name) for name in known} | {
            "kept_bytes": self.kept_bytes,
            "safe_bytes": self.safe_bytes,
        }


def slot_state(database: psycopg.Connection[Any], slot: str) -> SlotState | None:
    """None: there is no such slot."""
    row = database.execute(_SLOT, (slot,)).fetchone()
    return None if row is None else SlotState(row[0], None if row[1] is None else lsn_of(row[1]))


def kept_text(kept: int | None, safe: int | None, seconds: float | None = None) -> str:
    """How much log is kept for a slot, and how much may be written before it is lost."""
    parts = [] if kept is None else [f"the server keeps {size_text(kept)} of its log for us"]
    if safe is not None:
        after = "" if seconds is None else f", which takes {seconds / 3600:.1f} h at the present rate"
        parts.append(f"the slot may be lost after {size_text(max(0, safe))} more{after}")
    return "; ".join(parts)
