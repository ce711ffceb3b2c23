"""Events of the log that stand in the index as statements, but mean something else than their SQL says."""

from __future__ import annotations

QUERY = 2
"""A ROLLBACK TO that may mean one of several savepoints (`savepoints.py`)."""
EXECUTE_LOAD_QUERY = 18
INCIDENT = 26
XA_PREPARE = 38


def has_sql(event: int | None) -> bool:
    """Whether a statement in the log means its SQL. `event`: its type, if it is no ordinary statement."""
    return event is None or event == EXECUTE_LOAD_QUERY


def event_says(event: int | None) -> str:
    """Why rows may be others than the log says."""
    if event == INCIDENT:
        return "the source says that events were lost (INCIDENT)"
    if event == QUERY:
        return "the log does not say which of several savepoints of one name a ROLLBACK TO means"
    return f"there is an event of type {event} without its rows"


def event_warns(event: int | None) -> str:
    """What readers are told who get the rows that the log has."""
    if event == QUERY:
        return f"{event_says(event)}: rows of its transaction may be wrong"
    return f"{event_says(event)}: rows may have changed that are in no log"
