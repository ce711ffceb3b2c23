"""The packages that serve HTTP are an extra: a plain install has no web server."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.errors import ConfigError

PACKAGES = ("starlette", "uvicorn", "websockets")
"""The packages of the extra `http`."""


def check_packages(option: str) -> None:
    """Raises `ConfigError` if one of them is missing. `option` of the file needs it."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ConfigError(f"`{option}` needs the package {name}.", hint="pip install 'penstock[http]'")
