"""The options of `mysql_cdc`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.datasource.options import parse
from penstock.errors import ConfigError

SERVER = {"host": "127.0.0.1", "user": "u", "table": "shop.orders"}


def test_names_are_those_of_spark_or_of_pipeline_files(tmp_path: Path) -> None:
    one = parse({"relayLog": "/x", "table": "a.b", "maxBytesPerTrigger": "1MiB", "beforeImages": "false"})
    other = parse(
        {"relay_log": "/x", "table": "a.b", "max_bytes_per_trigger": "1MiB", "before_images": "false"}
    )
    assert one == other and one.max_bytes_per_trigger == 1024**2 and not one.before_images
    made = parse({**SERVER, "connectTimeout": "3s", "state": str(tmp_path), "zeroDates": "text"}).pipeline()
    assert made.source.model_dump()["connect_timeout"] == 3000 and made.types.zero_dates == "text"
    assert made.tables.include == ["shop.orders"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"host": "h", "user": "u"}, "`table`, or `tables`"),
        ({**SERVER, "tables": "shop.*"}, "`table`, or `tables`"),
        ({"host": "h", "user": "u", "tables": "orders"}, "`tables`"),
        ({**SERVER, "rows": "variant"}, "`rows`"),
        ({"table": "a.b"}, "`host`"),
        ({"table": "orders", "host": "h", "user": "u"}, "`table`"),
        ({**SERVER, "tabel": "x"}, "Did you mean `table`"),
        ({**SERVER, "relay_log": "/x"}, "has no meaning"),
        ({**SERVER, "snapshot": "maybe"}, "`snapshot`"),
        ({**SERVER, "zero_dates": "maybe"}, "`zero_dates`"),
        ({"table": "a.b", "host": "h"}, "`user`"),
        ({**SERVER, "max_bytes_per_trigger": "many"}, "`max_bytes_per_trigger`"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse(options)
    assert named in str(found.value)


def test_a_server_needs_a_state() -> None:
    with pytest.raises(ConfigError, match="`state`"):
        parse(SERVER).pipeline()


def test_patterns_are_divided_by_commas_outside_of_backticks(tmp_path: Path) -> None:
    made = parse(
        {"host": "h", "user": "u", "tables": "shop.*, `a,b`.c , x.y", "state": str(tmp_path)}
    ).pipeline()
    assert made.tables.include == ["shop.*", "`a,b`.c", "x.y"]


def test_the_password_is_not_shown() -> None:
    assert "s3cret" not in repr(parse({**SERVER, "password": "s3cret"}))
