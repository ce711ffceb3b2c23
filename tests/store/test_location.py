from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.errors import KeyRefused, StoreRefused
from penstock.store.location import Location


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket", Location("s3", "bucket", "")),
        ("s3://bucket/", Location("s3", "bucket", "")),
        ("s3a://my.bucket-1/a b/50%/", Location("s3a", "my.bucket-1", "a b/50%")),
        ("gs://bucket/prefix", Location("gs", "bucket", "prefix")),
        ("az://container/prefix", Location("az", "container", "prefix")),
        ("abfss://box@name.dfs.core.windows.net/p", Location("abfss", "box", "p", "name")),
        ("file:///var/lib/a%20b", Location("file", "", "/var/lib/a b")),
        (Path("/tmp/ü#?%").as_uri(), Location("file", "", "/tmp/ü#?%")),
    ],
)
def test_a_url_names_a_place(url: str, expected: Location) -> None:
    assert Location.parse(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "", "/folder", "bucket/prefix", "ftp://host/folder", "hdfs://host/folder", "s3:/bucket", "s3://",
        "s3:///prefix", "s3://bucket?x=1", "s3://bucket#x", "file://host/folder", "file://folder",
        "file:///a/../b", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/a\nb",
    ],
)  # fmt: skip
def test_what_names_no_place_is_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises((StoreRefused, KeyRefused)) as error:
        Location.parse(url)
    assert error.value.hint
    assert str(error.value).isprintable()


@pytest.mark.parametrize("url", ["s3://KEYID:hidden@bucket/p", "s3://hidden@bucket", "abfss://c:hidden@x/p"])
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreRefused, match="Credentials do not belong into the URL") as error:
        Location.parse(url)
    assert "hidden" not in str(error.value)


def test_a_key_is_joined_to_the_prefix_as_it_is() -> None:
    assert Location.parse("s3://bucket/a%20b").path("c d/é") == "a%20b/c d/é"
    assert Location.parse("s3://bucket").path("one") == "one"
    assert Location.parse("file:///folder").path("one") == "/folder/one"
    assert Location.parse("file:///").path("one") == "/one"


def test_urls_are_shown_so_that_they_can_be_read() -> None:
    assert str(Location.parse("s3://bucket/p/")) == "s3://bucket/p"
    assert Location.parse("s3://bucket").url("one") == "s3://bucket/one"
    assert str(Location.parse("s3://bucket")) == "s3://bucket"
    assert str(Location.parse("file:///folder")) == "file:///folder"
    assert Location.parse("file:///folder").url("a\nb") == "file:///folder/a\\nb"
    location = Location.parse("abfss://box@name.dfs.core.windows.net/p")
    assert location.url("one") == "abfss://box@name.dfs.core.windows.net/p/one"


def test_a_key_with_its_prefix_is_not_longer_than_a_bucket_allows() -> None:
    location = Location.parse("s3://bucket/" + "p" * 200)
    key = "/".join(["d" * 200] * 4)
    assert location.path(key)
    with pytest.raises(KeyRefused, match="1024 bytes"):
        location.path(f"{key}/{'x' * 100}")
