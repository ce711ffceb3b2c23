"""Constants of Spark SQL."""

from __future__ import annotations

import datetime
from decimal import Decimal

from typing_extensions import assert_never

Constant = bool | int | float | Decimal | bytes | str | datetime.datetime | datetime.date | None


def literal_of(value: Constant) -> str | None:
    """A value as a constant of Spark SQL. None for NULL."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case datetime.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{kind}'{value.isoformat(' ')}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case _:
            assert_never(value)
