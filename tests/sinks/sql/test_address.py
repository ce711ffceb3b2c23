"""URLs of databases, in both spellings."""

from __future__ import annotations

import pytest

from penstock.sinks.sql.address import Address, parsed
from penstock.sinks.sql.dialect import shortened


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h/db", Address("postgresql", "h", 5432, "db")),
        (
            "postgres://h:1/a%20b?sslmode=require",
            Address("postgresql", "h", 1, "a b", {"sslmode": "require"}),
        ),
        ("jdbc:mysql://[::1]:3307/", Address("mysql", "::1", 3307, "")),
        ("mariadb://h?ssl-mode=VERIFY_CA", Address("mysql", "h", 3306, "", {"ssl-mode": "VERIFY_CA"})),
        ("jdbc:sqlite:/a/b.db", Address("sqlite", "", 0, "/a/b.db")),
        ("sqlite:///a/b.db", Address("sqlite", "", 0, "/a/b.db")),
        ("sqlite:////a/b.db", Address("sqlite", "", 0, "/a/b.db")),
    ],
)
def test_both_spellings_are_read(url: str, expected: Address) -> None:
    assert parsed(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@h/db",
        "mysql://h?password=hunter2",
        "jdbc:postgresql://h/db?user=me&password=hunter2",
        "postgresql://h",
        "oracle:thin:@hunter2",
        "mysql://h/hunter2",
        "mysql://h:hunter2",
        "mysql://h?hunter=2",
        "sqlite:relative/hunter2.db",
        "hunter2",
    ],
)
def test_what_is_not_understood_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError) as error:
        parsed(url)
    assert "hunter2" not in str(error.value)


def test_a_name_that_is_too_long_is_cut_and_stays_different() -> None:
    one, other = ("x" * 70 + end for end in "ab")
    cut = [shortened(name, 64, unit=lambda character: 1) for name in (one, other)]
    assert len(set(cut)) == 2 and all(len(name) == 64 for name in cut)
    assert shortened("x" * 64, 64, unit=lambda character: 1) == "x" * 64
