"""Private ClickHouse servers: 18.16, from Debian's packages. It is old, and a real server."""

from __future__ import annotations

import contextlib
import http.client
import os
from pathlib import Path
from typing import ClassVar

from penstock.testing import artifacts, debian
from penstock.testing.servers.process import PrivateServer, free_port

_CONFIG = """\
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <listen_host>{host}</listen_host>
  <http_port>{port}</http_port>
  <tcp_port>{tcp_port}</tcp_port>
  <path>{folder}/data/</path>
  <tmp_path>{folder}/tmp/</tmp_path>
  <user_files_path>{folder}/files/</user_files_path>
  <format_schema_path>{folder}/schemas/</format_schema_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
  <timezone>UTC</timezone>
</yandex>
"""
_USERS = """\
<yandex>
  <profiles><default><max_memory_usage>0</max_memory_usage></default></profiles>
  <users><penstock><password>penstock</password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota></penstock></users>
  <quotas><default></default></quotas>
</yandex>
"""


class ClickHouseServer(PrivateServer):
    """One server, with the account `penstock`. It keeps its data over `stop`, `kill9` and `start`."""

    kind = "clickhouse"
    release: ClassVar[str] = "clickhouse-18.16"
    user = "penstock"
    password = "penstock"

    def __init__(self, *, folder: Path | None = None) -> None:
        artifacts.entry(self.release, self._unpack)
        super().__init__(folder=folder)
        try:
            for name in ("data", "tmp", "files", "schemas"):
                (self.folder / name).mkdir()
            config = _CONFIG.format(host=self.host, port=self.port, tcp_port=free_port(), folder=self.folder)
            (self.folder / "config.xml").write_text(config)
            (self.folder / "users.xml").write_text(_USERS)
            self.start()
        except BaseException:
            self.close()
            raise

    @classmethod
    def _unpack(cls, target: Path) -> None:
        debian.unpack_packages(["clickhouse-server"], target, suite="bookworm")

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        root = artifacts.cache_root() / self.release
        argv = debian.program(root, "usr/sbin/clickhouse-server")
        argv += [f"--config-file={self.folder}/config.xml"]
        return argv, {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def ready(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.client.OK
        return False
