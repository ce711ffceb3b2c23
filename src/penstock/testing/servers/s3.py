"""Private S3 servers, each of another maker: what one of them forgives another may not."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import socket
import sys
from pathlib import Path
from typing import ClassVar

from penstock.artifacts.maven import fetch, java
from penstock.errors import ConfigError
from penstock.testing.servers.process import SHORT_LIVED_JVM, PrivateServer, ServerFailed

KEY_ID, SECRET = "PENSTOCKTESTKEYID", "penstock-test-secret"
_JARS = "org.gaul:s3proxy:4.1.0"
_PINS: dict[str, str] = json.loads(Path(__file__).with_name("s3proxy_jars.json").read_text("utf-8"))


class S3Server(PrivateServer):
    """Starts with no bucket."""

    flaws: ClassVar[frozenset[str]] = frozenset()
    """How it differs from real object stores, as far as tests have found. Nobody runs it in production."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def iceberg_properties(self) -> dict[str, str]:
        """The properties with which an Iceberg catalog reaches this server."""
        return {
            "s3.endpoint": self.url,
            "s3.path-style-access": "true",
            "s3.access-key-id": KEY_ID,
            "s3.secret-access-key": SECRET,
            "client.region": "us-east-1",
        }

    def make_bucket(self, name: str) -> None:
        raise NotImplementedError

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as client:
            client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return client.recv(5) == b"HTTP/"
        return False


class Moto(S3Server):
    """A store in memory, in Python, without a check of signatures. Its conditional puts are made atomic
    (`moto_in_turn.py`)."""

    kind = "moto"

    def __init__(self) -> None:
        if importlib.util.find_spec("moto") is None:
            raise ConfigError("moto is not installed.", hint="pip install 'moto[server]'")
        super().__init__()
        self.start()

    def make_bucket(self, name: str) -> None:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("PUT", f"/{name}")
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise ServerFailed(f"The private {self.kind} made no bucket {name}: status {answer.status}.")

    def command(self) -> tuple[list[str], dict[str, str]]:
        program = [sys.executable, str(Path(__file__).with_name("moto_in_turn.py"))]
        program += ["-H", self.host, "-p", str(self.port)]
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return program, kept


class S3Proxy(S3Server):
    """A store on files, in Java, with a check of signatures and of credentials."""

    kind = "s3proxy"
    flaws: ClassVar[frozenset[str]] = frozenset(
        {
            "If-Match is compared before the write, not with it",
            "error 500 for a key below an object",
            "error 500 for a name of 255 bytes",
            "keys are ordered by UTF-16",
        }
    )

    def __init__(self, *, read_only: bool = False) -> None:
        super().__init__()
        self.jars = fetch(_JARS, transitive=True, pins=_PINS)
        (self.folder / "objects").mkdir()
        settings = {
            "s3proxy.endpoint": self.url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": KEY_ID,
            "s3proxy.credential": SECRET,
            "s3proxy.read-only-blobstore": str(read_only).lower(),
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.folder / "objects"),
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        (self.folder / "s3proxy.properties").write_text("\n".join(lines))
        self.start()

    def make_bucket(self, name: str) -> None:
        (self.folder / "objects" / name).mkdir()

    def command(self) -> tuple[list[str], dict[str, str]]:
        program = [
            java(),
            *SHORT_LIVED_JVM,
            "-Xmx512m",  # a signed object is in memory whole, some of them at once
            "-cp",
            ":".join(map(str, self.jars)),
            "org.gaul.s3proxy.Main",
        ]
        return [*program, "--properties", str(self.folder / "s3proxy.properties")], {
            "PATH": os.defpath,
            "LC_ALL": "C.UTF-8",  # Java names files by it
        }
