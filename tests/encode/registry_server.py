"""A schema registry in this process. It answers as the reference of Confluent's REST API says. What is
compatible decides a function of the test."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Body = dict[str, Any]


@dataclass
class FakeRegistry:
    url: str = ""
    account: str = ""
    """`user:password` that is asked for; empty: nobody is asked."""
    failures: list[int] = field(default_factory=list)
    """HTTP codes of the next answers."""
    reasons_against: Callable[[Body, Body], list[str]] = lambda new, old: []
    """Why a new schema is not compatible with the newest one."""
    subjects: dict[str, list[Body]] = field(default_factory=dict)
    ids: list[Body] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, body: Body) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "Error in the backend"}
        if found := re.fullmatch(r"/compatibility/subjects/([^/]+)/versions/latest\?verbose=true", path):
            versions = self.subjects.get(unquote(found[1]))
            if not versions:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            reasons = self.reasons_against(body, versions[-1])
            return 200, {"is_compatible": not reasons, "messages": reasons}
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            return self._register(unquote(found[1]), body)
        if found := re.fullmatch(r"/subjects/([^/]+)", path):
            versions = self.subjects.get(unquote(found[1]))
            if versions is None:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            if body not in versions:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, {"id": self.ids.index(body) + 1, "version": versions.index(body) + 1}
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(found[1])
            if not 0 < number <= len(self.ids):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self.ids[number - 1]
        if path == "/subjects":
            return 200, list(self.subjects)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, body: Body) -> tuple[int, Any]:
        versions = self.subjects.setdefault(subject, [])
        if not body["schema"]:
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        if versions and (reasons := self.reasons_against(body, versions[-1])):
            return 409, {"error_code": 409, "message": f"Schema being registered is incompatible: {reasons}"}
        if body not in self.ids:
            self.ids.append(body)
        if body not in versions:
            versions.append(body)
        return 200, {"id": self.ids.index(body) + 1}


@contextmanager
def fake_registry(**options: Any) -> Iterator[FakeRegistry]:
    registry = FakeRegistry(**options)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            wanted = f"Basic {base64.b64encode(registry.account.encode()).decode()}"
            if registry.account and self.headers.get("Authorization") != wanted:
                code, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                code, answer = registry.answer(self.command, self.path, json.loads(body or b"{}"))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = _serve

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
