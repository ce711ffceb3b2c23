"""ClickHouse of today, in this process (`chdb`), behind the HTTP interface as far as the sink uses it.

`python chdb_front.py PORT FOLDER`. Rows of an INSERT go through a file: chdb takes statements as texts.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from chdb.session import Session

_INSERT = re.compile(rb"(INSERT INTO .*?) FORMAT Native\n", re.DOTALL)


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session: Any
    folder: Path
    turn = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.turn:
            try:
                status, answer = 200, self._run(body)
            except Exception as error:
                status, answer = 500, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _run(self, body: bytes) -> bytes:
        match = _INSERT.match(body)
        if match is None:
            return bytes(self.session.query(body.decode(), "JSONCompact").bytes())
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".native") as file:
            file.write(body[match.end() :])
            file.flush()
            self.session.query(f"{match[1].decode()} SELECT * FROM file('{file.name}', 'Native')")
        return b""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the tests show what fails."""


def main() -> None:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    Front.session, Front.folder = Session(str(folder / "data")), folder
    ThreadingHTTPServer(("127.0.0.1", port), Front).serve_forever()


if __name__ == "__main__":
    main()
