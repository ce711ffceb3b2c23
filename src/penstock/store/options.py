"""How a store is reached, beside its URL; and every limit of the storage layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.backoff import Schedule
from penstock.store.credentials import Ambient, Credentials

_SCHEDULE = Schedule(first_s=0.1, max_s=10, jitter=0.5)


@dataclass(frozen=True)
class Retries:
    """When something is tried again, and when no more."""

    schedule: Schedule = _SCHEDULE
    """Half a wait is left to chance: writers that were throttled together do not come back together."""
    seconds_max: float = 120.0
    """Seconds from the first attempt after which no attempt begins. A store that throttles for minutes is a
    fault of the step, which has retries of its own."""
    attempts_max: int = 20


@dataclass(frozen=True)
class StoreOptions:
    """May be pickled if `credentials` may be."""

    credentials: Credentials = field(default_factory=Ambient)
    endpoint: str = ""
    """URL of a compatible server; empty for the cloud's own. `http://` is allowed only if it stands here."""
    region: str = ""
    """The region of S3. Empty: that of the environment or the profile, else us-east-1."""
    path_style: bool = True
    """Whether requests to an `endpoint` of S3 go to `endpoint/bucket/key`, as most compatible servers want,
    instead of `bucket.endpoint/key`, as at Amazon."""
    account: str = ""
    """The account of Azure, if the URL does not name it."""
    retries: Retries = field(default_factory=Retries)
    connect_seconds_max: float = 5.0
    request_seconds_max: float = 30.0
    """Limit for one attempt, with its body: a part of 8 MiB needs 280 kB/s."""
    part_bytes: int = 8 << 20
    """Bytes of a part of an upload. S3 takes at most 10,000 parts, so one object may have 80 GiB."""
    whole_parts: int = 2
    """Objects of up to so many parts are sent with one request: in parts they would take three more, two of
    them one after another. A request for 16 MiB takes a fifth of a second."""
    parts_at_once: int = 4
    """Sent side by side. An upload holds `part_bytes` times this, and one part more."""
    range_gap_bytes: int = 256 << 10
    """`get_ranges` reads ranges that are closer than this with one request: 256 KiB cost less than a
    request's latency."""
    delete_batch: int = 1000
    """Keys in one request: what S3 allows."""

    @property
    def whole_bytes(self) -> int:
        """The largest object that is sent with one request."""
        return self.whole_parts * self.part_bytes
