from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.testing.servers.catalogs import java_of


def test_a_java_that_is_new_enough_is_found_or_the_lack_of_it_is_said() -> None:
    assert java_of(17).endswith("java")
    with pytest.raises(ConfigError, match="There is no Java 999 or newer in JAVA_HOME, on the PATH or below"):
        java_of(999)
