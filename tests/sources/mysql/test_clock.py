"""The source's clock, which says up to when a target is complete."""

from __future__ import annotations

import pytest

from penstock.sources.mysql import session
from penstock.testing.servers import Database

CLOCKS_GO_BACK = 1_729_990_800
"""2024-10-27 01:00 UTC: in Berlin, 2 o'clock comes a second time."""


@pytest.mark.parametrize("zone", ["+00:00", "+02:00", "-09:30"])
def test_the_clock_is_that_of_utc_whatever_the_time_zone(mysql: Database, zone: str) -> None:
    """A local time names two moments in the hour in which clocks are set back, so none is read."""
    with mysql.connect() as connection, connection.cursor() as cursor:
        for moment in (CLOCKS_GO_BACK - 1800, CLOCKS_GO_BACK + 1800):
            cursor.execute(f"SET time_zone = '{zone}', timestamp = {moment}.25")
            assert session._clock_us(connection) == moment * 1_000_000 + 250_000
