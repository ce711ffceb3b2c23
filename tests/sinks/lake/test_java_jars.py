from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("java_jars", ROOT / "scripts" / "java_jars.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["java_jars"] = importlib.util.module_from_spec(spec)  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


NEEDS_HBASE = pytest.param("row_frames.jar", marks=pytest.mark.slow)  # fetches its client
NEEDS_CANAL = pytest.param("client.jar", marks=pytest.mark.slow)  # fetches its client


@pytest.mark.parametrize(
    "name", ["log_store.jar", "directory_log_store.jar", "metadata_cache.jar", NEEDS_HBASE, NEEDS_CANAL]
)
def test_a_jar_in_the_package_is_the_one_of_its_source(name: str) -> None:
    java_jars = script()
    (jar,) = (one for one in java_jars.JARS if one.path.name == name)
    assert java_jars.compiled(jar) == jar.path.read_bytes(), "run scripts/java_jars.py"
