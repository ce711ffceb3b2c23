"""Keys of object stores in the pipeline file: where they are, and where they are not."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock import config as configuration
from penstock.config import PipelineConfig, executor_variables
from penstock.errors import InternalError
from penstock.secret import REVEALED
from penstock.store.credentials import Ambient, Credentials
from penstock.store.objects import ObjectStore
from penstock.testing.servers.s3 import KEY_ID, SECRET

TOKEN, PASSWORD = "the-session-token-of-a-test", "hunter2-hunter2"
KEYS = {"access_key_id": KEY_ID, "secret_access_key": SECRET, "session_token": TOKEN}
ON_CLUSTER = {"spark": {"master": "spark://host:7077"}}


def config_of(folder: Path, store: dict[str, Any], **options: Any) -> PipelineConfig:
    (folder / "state").mkdir(exist_ok=True)
    document = {
        "name": "a", "source": {"user": "u", "password": PASSWORD}, "tables": ["shop.*"], "state": "state",
        "sink": {"path": "lake"}, "staging": "s3://bucket/staging", "store": store,
    }  # fmt: skip
    return configuration.parse({**document, **options}, base=folder)


def credentials_of(config: PipelineConfig) -> Credentials:
    store = config.store.open(config.staging_url)
    assert isinstance(store, ObjectStore)
    return store.options.credentials


def revealed(pickled: bytes) -> tuple[str, str, str]:
    keys = pickle.loads(pickled).options.credentials.keys()
    assert keys is not None
    return keys.reveal()  # type: ignore[no-any-return]


def test_without_keys_the_ecosystems_own_are_used(tmp_path: Path) -> None:
    assert credentials_of(config_of(tmp_path, {})) == Ambient()
    assert credentials_of(config_of(tmp_path, {"profile": "lake"})) == Ambient("lake")


def test_keys_are_shown_nowhere_and_saved_for_this_account_alone(tmp_path: Path) -> None:
    config = config_of(tmp_path, KEYS)
    shown = [repr(config), str(config), config.model_dump_json(), repr(config.store.open("s3://b/x"))]
    assert [text for text in shown for secret in (SECRET, TOKEN, KEY_ID) if secret in text] == []
    configuration.save(config, tmp_path / "saved.yaml")
    saved = configuration.load(tmp_path / "saved.yaml")
    assert saved.store.model_dump(mode="json", context=REVEALED)["secret_access_key"] == SECRET
    assert (tmp_path / "saved.yaml").stat().st_mode & 0o777 == 0o600


def test_a_store_may_be_pickled_only_while_the_keys_are_lent(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="pickled"):
        pickle.dumps(config_of(tmp_path, KEYS).store.open("s3://bucket/x"))


def test_on_one_machine_tasks_find_the_keys_in_a_file_that_lasts_as_long_as_the_run(tmp_path: Path) -> None:
    with configuration.with_lent_secrets(config_of(tmp_path, KEYS)) as config:
        pickled = pickle.dumps(config.store.open(config.staging_url))
        assert revealed(pickled) == (KEY_ID, SECRET, TOKEN)
        assert executor_variables(config) == {}
        files = list((tmp_path / "state" / "secrets").iterdir())
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert not any(secret.encode() in pickled for secret in (KEY_ID, SECRET, TOKEN))
    assert list((tmp_path / "state" / "secrets").iterdir()) == []


def test_on_a_cluster_tasks_find_keys_and_password_in_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configuration.with_lent_secrets(config_of(tmp_path, KEYS, **ON_CLUSTER)) as config:
        pickled = pickle.dumps(config.store.open(config.staging_url))
        source = pickle.dumps(config.source)
        variables = {name: value.reveal() for name, value in executor_variables(config).items()}
        assert sorted(variables.values()) == sorted([KEY_ID, SECRET, TOKEN, PASSWORD])
        assert all("SECRET" in name for name in variables), "Spark hides such names"
        assert revealed(pickled) == (KEY_ID, SECRET, TOKEN), "the driver has them, too"
        assert not (tmp_path / "state" / "secrets").exists()
    assert not set(variables) & set(os.environ)
    assert not any(secret.encode() in pickled + source for secret in (KEY_ID, SECRET, TOKEN, PASSWORD))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert revealed(pickled) == (KEY_ID, SECRET, TOKEN)
    assert pickle.loads(source).password.reveal() == PASSWORD
