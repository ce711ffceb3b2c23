from __future__ import annotations

import copy
import json
import pickle
import traceback
from pathlib import Path

import pytest

from penstock import config as configuration
from penstock.config import PipelineConfig, Secret
from penstock.errors import ConfigError, InternalError, TransientError
from penstock.secret import lent
from penstock.sources.mysql.options import MySqlOptions, options_of

PASSWORD = "hunter2-hunter2"
OPTIONS = {"name": "a", "source": {"user": "u", "password": PASSWORD}, "tables": ["shop.*"], "state": "s"}


def test_no_way_of_printing_shows_it() -> None:
    config = configuration.parse(OPTIONS)
    secret = options_of(config).password
    shown = [repr(config), str(config), f"{secret} {secret!r}"]
    shown += [
        f"{secret!s:>20} {vars(config.source)}",
        config.model_dump_json(),
        json.dumps(config.model_dump(mode="json")),
    ]
    shown += [repr(config.model_dump()), repr(copy.deepcopy(config)), repr(vars(config.source))]
    try:
        raise ValueError(config.source)
    except ValueError:
        shown.append(traceback.format_exc())
    assert [text for text in shown if PASSWORD in text] == []
    assert secret.reveal() == PASSWORD


def test_it_is_a_text_in_the_pipeline_file() -> None:
    with pytest.raises(Exception, match=r"source\.password.*text") as caught:
        configuration.parse({**OPTIONS, "source": {"user": "u", "password": 12345678}})
    assert "12345678" not in str(caught.value)


def test_it_refuses_to_be_pickled_unless_it_was_lent() -> None:
    with pytest.raises(InternalError, match="without having been lent"):
        pickle.dumps(configuration.parse(OPTIONS).source)
    source = MySqlOptions(user="u")
    assert pickle.loads(pickle.dumps(source)) == source, "without a password there is nothing to hide"


def test_one_in_a_file_is_read_at_each_use_and_travels_as_the_path(tmp_path: Path) -> None:
    file = tmp_path / "password"
    source = {"user": "u", "password": {"file": str(file)}}
    made = configuration.parse({**OPTIONS, "source": source}, base=tmp_path)
    secret = options_of(made).password
    with pytest.raises(TransientError, match=f"{file}.*No such file") as raised:
        secret.reveal()
    assert "readable for the account" in raised.value.hint
    for text in (PASSWORD, "changed"):
        file.write_text(f"{text}\n")
        with configuration.with_lent_secrets(made) as config:
            pickled = pickle.dumps(config.source)
        assert str(file).encode() in pickled and text.encode() not in pickled
        assert pickle.loads(pickled).password.reveal() == secret.reveal() == text
    assert PASSWORD not in repr(made)
    configuration.save(made, tmp_path / "saved.yaml")
    assert options_of(configuration.load(tmp_path / "saved.yaml")).password == secret
    with pytest.raises(ConfigError, match="absolute"):
        configuration.parse({**OPTIONS, "source": {"user": "u", "password": {"file": "here"}}})


def lending(folder: Path) -> PipelineConfig:
    (folder / "s").mkdir(exist_ok=True)
    return configuration.parse(OPTIONS, base=folder)


def test_a_lent_password_travels_as_a_path_that_only_this_account_can_read(tmp_path: Path) -> None:
    with configuration.with_lent_secrets(lending(tmp_path)) as config:
        pickled = pickle.dumps(config.source)
        assert PASSWORD.encode() not in pickled
        assert pickle.loads(pickled).password.reveal() == PASSWORD
        assert pickle.loads(pickled) == config.source
        [file] = (tmp_path / "s" / "secrets").iterdir()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not file.exists(), "no longer than the run"
    with pytest.raises(TransientError, match="cannot be read"):
        pickle.loads(pickled).password.reveal()


def test_what_a_killed_run_left_behind_goes_with_the_next_one(tmp_path: Path) -> None:
    config = lending(tmp_path)
    left = lent({"password": Secret("old")}, config.state)
    left.__enter__()
    with configuration.with_lent_secrets(config):
        [file] = (config.state / "secrets").iterdir()
        assert file.read_text() == PASSWORD


@pytest.mark.parametrize("first", ["@", "`", "%", "&", "*", "!", "[", "{", "|", ">", "x: ", "'", '"'])
def test_a_file_that_is_no_yaml_because_of_the_password_does_not_show_it(tmp_path: Path, first: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"name: a\nsource:\n  user: u\n  password: {first}{PASSWORD}: x\n")
    with pytest.raises(ConfigError) as error:
        configuration.load(path)
    shown = "".join(traceback.format_exception(error.value))
    assert "not valid YAML (line" in shown and "hunter2" not in shown
