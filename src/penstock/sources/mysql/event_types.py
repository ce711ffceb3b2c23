"""Events of the log that stand in the index as statements, although they are no QUERY events."""

from __future__ import annotations

EXECUTE_LOAD_QUERY = 18
INCIDENT = 26
XA_PREPARE = 38

EVENTS_LOST = "the source says that events were lost (INCIDENT)"
