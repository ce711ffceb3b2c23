"""Names and pages by which a server of HTTP may be asked."""

from __future__ import annotations

import pytest

from penstock.access.hosts import Foreign, Hosts

LOOPBACK = Hosts(["127.0.0.1"], ["Pen.example"], option="hosts")
ANY = Hosts(["0.0.0.0"], [], option="hosts")
OUTSIDE = Hosts(["10.1.2.3"], [], option="hosts")
NAMED = Hosts(["pen.internal", "10.1.2.3"], [], option="hosts")


@pytest.mark.parametrize(
    ("hosts", "host", "origin"),
    [
        (LOOPBACK, "127.0.0.1:8190", None),
        (LOOPBACK, "LocalHost", None),
        (LOOPBACK, "localhost.:9000", "http://localhost.:9000"),  # a forwarded port
        (LOOPBACK, "[::1]:1", "http://[::1]:1"),
        (LOOPBACK, "pen.example", "https://pen.example"),
        (LOOPBACK, "127.0.0.1:8190", "https://pen.example"),  # a proxy that changes Host
        (LOOPBACK, None, None),  # HTTP/1.0, as some checks of health
        (ANY, "192.168.7.7:8190", None),
        (ANY, "[fd00::7]:8190", None),
        (ANY, "localhost", None),
        (OUTSIDE, "10.1.2.3", None),
        (NAMED, "pen.internal:80", None),
        (NAMED, "10.1.2.3:80", None),
    ],
)
def test_a_server_is_asked_by_its_addresses_and_the_names_of_its_file(
    hosts: Hosts, host: str | None, origin: str | None
) -> None:
    hosts.check(host, origin)


@pytest.mark.parametrize("hosts", [LOOPBACK, ANY, OUTSIDE, NAMED])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8190", "127.0.0.1.evil.example", "localhost.evil.example", "", ":8190",
        "evil.example@127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1/evil.example", "0x7f.1", "[::1",
        "127.0.0.1#evil.example", "127.0.0.1,evil.example", "2130706433", "127.0.0.1:8190:8190",
        "l\u043ecalhost", " localhost",
    ],
)  # fmt: skip
def test_other_names_are_refused_also_with_their_own_page(hosts: Hosts, host: str) -> None:
    for origin in (None, f"http://{host}"):
        with pytest.raises(Foreign, match="not known as"):
            hosts.check(host, origin)


@pytest.mark.parametrize("host", ["127.0.0.1:8190", "localhost:8190", "pen.example", None])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:8191", "file://"])
def test_pages_of_other_servers_are_refused(host: str | None, origin: str) -> None:
    with pytest.raises(Foreign, match="Pages of other servers"):
        LOOPBACK.check(host, origin)


def test_an_address_that_is_not_listened_on_is_refused() -> None:
    for hosts in (LOOPBACK, OUTSIDE, NAMED):
        with pytest.raises(Foreign):
            hosts.check("192.168.7.7", None)
    with pytest.raises(Foreign):
        OUTSIDE.check("localhost", None)
