from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from penstock.sinks.decimals import decimal_texts


def test_decimals_have_no_exponent() -> None:
    column = pa.array([Decimal("1E-10"), Decimal("-0.000000012345678901"), None], pa.decimal128(38, 18))
    assert decimal_texts(column).to_pylist() == ["0.000000000100000000", "-0.000000012345678901", None]
