"""A plain install has no web server."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.http.packages import PACKAGES, check_packages


@pytest.mark.parametrize("package", PACKAGES)
def test_without_the_extra_the_error_names_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_packages("http")
    found = importlib.util.find_spec

    def missing(name: str) -> Any:
        return None if name == package else found(name)

    monkeypatch.setattr("penstock.http.packages.find_spec", missing)
    with pytest.raises(ConfigError, match=f"`http` needs the package {package}") as refused:
        check_packages("http")
    assert refused.value.hint == "pip install 'penstock[http]'"


def test_the_web_server_is_not_imported_where_it_is_not_used() -> None:
    script = "import sys, penstock.cli, penstock.runtime.pipeline, penstock.commands.serve; "
    script += f"print([one for one in {PACKAGES} if one in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
