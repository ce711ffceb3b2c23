"""Credentials are found where people keep them, and shown nowhere."""

from __future__ import annotations

import json
import logging
import os
import pickle
import stat
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.store.conftest import options

from penstock.errors import InternalError, PenstockError
from penstock.store.credentials import (
    Ambient,
    Credentials,
    GivenKeys,
    Keys,
    KeysFromEnvironment,
    KeysFromFile,
    VendedKeys,
    lent,
)
from penstock.store.errors import StoreRefused
from penstock.store.objects import ObjectStore
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions
from penstock.testing.faulty_proxy import Fault, FaultyProxy
from penstock.testing.servers.s3 import KEY_ID, SECRET

TOKEN = "the-session-token-of-a-test"


def reached_with(proxy: FaultyProxy) -> str:
    """The key id of the last request."""
    header = proxy.requests[-1].headers["authorization"]
    return header.split("Credential=", 1)[1].split("/", 1)[0]


def store_with(proxy: FaultyProxy, url: str, credentials: Credentials) -> ObjectStore:
    given = options(proxy.url, attempts=3)
    made = open_store(url, StoreOptions(credentials, proxy.url, retries=given.retries))
    assert isinstance(made, ObjectStore)
    return made


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine that runs the test."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def test_credentials_are_in_no_text_log_or_pickle(
    proxy: FaultyProxy, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(KEY_ID, SECRET, token=TOKEN)
    store = store_with(proxy, url, GivenKeys(keys))
    shown = [repr(keys), str(keys), repr(store), repr(store.options), f"{store.options.credentials}"]
    caplog.set_level(logging.DEBUG)
    for code, status in (("InvalidToken", 400), ("SignatureDoesNotMatch", 403), ("SlowDown", 503)):
        # Servers repeat in their answers what they were sent.
        answer = f"{code}</Code><Token-0>{TOKEN}{SECRET}</Token-0><Code>"
        proxy.forget()
        proxy.plan(Fault("answer", status=status, code=answer), times=3)
        with pytest.raises(PenstockError) as error:
            store.put_if_absent("one", b"")
        shown += [str(error.value), repr(error.value), json.dumps(error.value.to_json())]
        shown += traceback.format_exception(error.value)
        shown.append(repr(pickle.dumps(error.value)))
    shown.append(caplog.text)
    with lent(keys, tmp_path / "secrets") as lending:
        store = store_with(proxy, url, lending.reference)
        shown.append(repr(pickle.dumps(store)))
    for text in shown:
        assert SECRET not in text
        assert TOKEN not in text
    assert "503 SlowDown" in caplog.text


def refused(keys: Keys) -> list[object]:
    return [keys, GivenKeys(keys), VendedKeys(lambda: keys), StoreOptions(GivenKeys(keys))]


def test_credentials_in_memory_refuse_to_be_pickled() -> None:
    for value in refused(Keys(KEY_ID, SECRET)):
        with pytest.raises(InternalError):
            pickle.dumps(value)


def test_a_store_is_pickled_with_the_reference_to_its_credentials(
    proxy: FaultyProxy, url: str, tmp_path: Path
) -> None:
    with lent(Keys(KEY_ID, SECRET), tmp_path / "secrets") as lending:
        file = lending.reference.path
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        copy = pickle.loads(pickle.dumps(store_with(proxy, url, lending.reference)))
        copy.put("one", b"1")
        assert reached_with(proxy) == KEY_ID
    assert not file.exists()
    again = pickle.loads(pickle.dumps(copy))
    with pytest.raises(StoreRefused, match=str(file)):
        again.get("one")


def from_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Credentials:
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    )
    return Ambient("work")


def from_default_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Credentials:
    from_profile(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_PROFILE", "work")
    return Ambient()


def from_aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Credentials:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return Ambient()


def from_own_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Credentials:
    monkeypatch.setenv("LAKE_KEY", KEY_ID)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    return KeysFromEnvironment("LAKE_KEY", "LAKE_SECRET")


@pytest.mark.parametrize(
    "place", [from_profile, from_default_profile, from_aws_environment, from_own_variables]
)
def test_credentials_are_found_where_people_keep_them(
    proxy: FaultyProxy,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[pytest.MonkeyPatch, Path], Credentials],
) -> None:
    store_with(proxy, url, place(monkeypatch, tmp_path)).put("one", b"1")
    assert reached_with(proxy) == KEY_ID


def test_credentials_that_end_are_renewed_before(proxy: FaultyProxy, url: str) -> None:
    """A catalog hands out keys for a time."""
    handed_out: list[tuple[datetime, Keys]] = []

    def vend() -> Keys:
        now = datetime.now(timezone.utc)
        keys = Keys(KEY_ID, SECRET, ends=now + timedelta(seconds=3600 if handed_out else 20))
        handed_out.append((now, keys))
        return keys

    store = store_with(proxy, url, VendedKeys(vend))
    store.put("one", b"1")
    assert len(handed_out) == 1
    while len(handed_out) == 1:
        store.put("one", b"1")
    renewed_at, first_ends = handed_out[1][0], handed_out[0][1].ends
    assert first_ends is not None
    assert renewed_at < first_ends
    for key in "abc":
        store.put(key, b"")
    assert len(handed_out) == 2


def test_keys_are_renewed_five_minutes_before_they_end_or_halfway() -> None:
    def left(seconds: float) -> float:
        now = datetime.now(timezone.utc)
        renew_at = Keys("", "", ends=now + timedelta(seconds=seconds)).renew_at()
        assert renew_at is not None
        return (renew_at - now).total_seconds()

    assert left(3600) == pytest.approx(3300, abs=5)
    assert left(200) == pytest.approx(100, abs=5)
    assert left(-10) < 0
    assert Keys("", "").renew_at() is None


def test_credentials_that_the_store_calls_ended_are_renewed(proxy: FaultyProxy, url: str) -> None:
    handed_out: list[Keys] = []

    def vend() -> Keys:
        handed_out.append(Keys(KEY_ID, SECRET, ends=datetime.now(timezone.utc) + timedelta(hours=1)))
        return handed_out[-1]

    store = store_with(proxy, url, VendedKeys(vend))
    store.put("one", b"1")
    proxy.plan(Fault("answer", status=400, code="ExpiredToken"))
    assert store.get("one").data == b"1"
    assert len(handed_out) >= 2


def test_an_error_of_who_hands_out_credentials_reaches_the_caller(proxy: FaultyProxy, url: str) -> None:
    def vend() -> Keys:
        raise StoreRefused("The catalog hands out no keys for this table.", hint="Ask for the right.")

    with pytest.raises(StoreRefused, match="catalog hands out no keys"):
        store_with(proxy, url, VendedKeys(vend)).get("one")

    def broken() -> Keys:
        raise ValueError(SECRET)

    with pytest.raises(StoreRefused, match="ValueError") as error:
        store_with(proxy, url, VendedKeys(broken)).get("one")
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_a_missing_profile_variable_or_file_is_one_error_with_a_cure(tmp_path: Path) -> None:
    for credentials in (
        Ambient("nobody"), KeysFromEnvironment("NOT_SET", "NOT_SET"), KeysFromFile(tmp_path / "none")
    ):  # fmt: skip
        store = open_store("s3://lake", StoreOptions(credentials, "http://127.0.0.1:9"))
        with pytest.raises(StoreRefused) as error:
            store.get("one")
        assert error.value.hint
