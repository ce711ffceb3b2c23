"""An S3 server that does next to nothing: objects are in its memory, and nobody's signature is checked.

The benchmarks compare a lake on a disk with one in an object store, on one machine. A store in a cloud has
cores of its own. S3Proxy and moto, which the tests use, have not: to take the files of a backlog cost them as
much CPU time as it cost Penstock to make them, and 8 MiB took a second. So what was measured was the server.
This one answers a request when its time is over, and takes a few per cent of one core.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import formatdate
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from typing_extensions import Self

from penstock.testing.faulty_proxy import Request

_PAGE = 1000
_QUOTES = {"&quot;": '"', "&apos;": "'"}


@dataclass(frozen=True)
class _Object:
    content: bytes
    etag: str
    attributes: dict[str, str]
    """The headers that come back with it."""
    modified: float = field(default_factory=time.time)


@dataclass
class _Upload:
    attributes: dict[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """Of the object, in the answer to HEAD, which has no body."""


class LightStore:
    """Listens on 127.0.0.1 while its `with` block lasts. Every bucket exists. `request_s`: how long each
    request takes at least."""

    def __init__(self, request_s: float) -> None:
        self._request_s = request_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[Request] = []
        self._objects: dict[str, _Object] = {}
        self._uploads: dict[str, _Upload] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="light store", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    # the protocol -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            stream = client.makefile("rb", buffering=1 << 18)
            while first := stream.readline():
                headers = {}
                while (line := stream.readline()) != b"\r\n":
                    name, _, value = line.decode("latin-1").partition(":")
                    headers[name.lower()] = value.strip()
                if "100-continue" in headers.get("expect", "").lower():
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                length = int(headers.get("content-length", 0))
                body = stream.read(length)
                began = time.monotonic()
                method, target, _ = first.decode("latin-1").split(" ", 2)
                request = Request(method, target, headers, body_bytes=length)
                self.requests.append(request)
                with self._lock:
                    answer = self._answer(request, _unchunked(body, headers))
                time.sleep(max(0.0, self._request_s - (time.monotonic() - began)))
                client.sendall(_head(answer))
                if method != "HEAD":
                    client.sendall(answer.body)

    def _answer(self, request: Request, body: bytes) -> Answer:
        place = urlsplit(request.path)
        query = dict(parse_qsl(place.query, keep_blank_values=True))
        bucket, _, key = unquote(place.path).removeprefix("/").partition("/")
        name = f"{bucket}/{key}"
        match request.method:
            case "PUT" if "uploadId" in query:
                self._uploads[query["uploadId"]].parts[int(query["partNumber"])] = body
                return Answer(headers={"ETag": self._etag()})
            case "PUT":
                return self._put(name, body, request.headers)
            case "POST" if "uploads" in query:
                number = str(next(self._numbers))
                self._uploads[number] = _Upload(_attributes(request.headers))
                return _xml("InitiateMultipartUploadResult", f"<UploadId>{number}</UploadId>")
            case "POST" if "uploadId" in query:
                whole = self._uploads.pop(query["uploadId"])
                content = b"".join(part for _, part in sorted(whole.parts.items()))
                made = self._objects[name] = _Object(content, self._etag(), whole.attributes)
                return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(made.etag)}</ETag>")
            case "POST":
                keys = re.findall("<Key>([^<]*)</Key>", body.decode())
                for found in keys:
                    self._objects.pop(f"{bucket}/{unescape(found, _QUOTES)}", None)
                deleted = (f"<Deleted><Key>{found}</Key></Deleted>" for found in keys)
                return _xml("DeleteResult", "".join(deleted))
            case "DELETE":
                self._uploads.pop(query.get("uploadId", ""), None)
                if "uploadId" not in query:
                    self._objects.pop(name, None)
                return Answer(204)
            case "GET" if "list-type" in query:
                return self._list(bucket, query)
            case _:
                return self._get(name, request)

    # the objects --------------------------------------------------------------------------------------------

    def _etag(self) -> str:
        return f'"{next(self._numbers):032x}"'

    def _put(self, name: str, content: bytes, headers: dict[str, str]) -> Answer:
        present, wanted = self._objects.get(name), headers.get("if-match")
        if wanted is not None and present is None:
            return _error(404, "NoSuchKey")
        refused = wanted is not None and present is not None and present.etag.strip('"') != wanted.strip('"')
        if refused or (present is not None and headers.get("if-none-match") == "*"):
            return _error(412, "PreconditionFailed")
        made = self._objects[name] = _Object(content, self._etag(), _attributes(headers))
        return Answer(headers={"ETag": made.etag})

    def _get(self, name: str, request: Request) -> Answer:
        found = self._objects.get(name)
        if found is None:
            return Answer() if name.endswith("/") else _error(404, "NoSuchKey")
        headers = {
            "ETag": found.etag, "Accept-Ranges": "bytes",
            "Last-Modified": formatdate(found.modified, usegmt=True), **found.attributes,
        }  # fmt: skip
        size = len(found.content)
        if request.method == "HEAD":
            return Answer(headers=headers, length=size)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if wanted is None:
            return Answer(body=found.content, headers=headers)
        first, last = wanted.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last) + 1, size) if first and last else size
        if start >= size:
            return _error(416, "InvalidRange")
        return Answer(
            206, found.content[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        )

    def _list(self, bucket: str, query: dict[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most, seen = int(query.get("max-keys", _PAGE)), ""
        entries: list[str] = []
        names = sorted(name.partition("/")[2] for name in self._objects if name.startswith(f"{bucket}/"))
        last = after
        for key in names:
            if not key.startswith(prefix) or key <= after or (seen and key.startswith(seen)):
                continue
            if len(entries) == most:
                more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(last)}"
                return _xml("ListBucketResult", "".join(entries) + more + "</NextContinuationToken>")
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                seen = prefix + rest.partition(delimiter)[0] + delimiter
                entries.append(f"<CommonPrefixes><Prefix>{escape(seen)}</Prefix></CommonPrefixes>")
                last = seen + "\U0010ffff"
                continue
            one, last = self._objects[f"{bucket}/{key}"], key
            moment = datetime.fromtimestamp(one.modified, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{moment}</LastModified>"
                f"<ETag>{escape(one.etag)}</ETag><Size>{len(one.content)}</Size></Contents>"
            )
        return _xml("ListBucketResult", "".join(entries) + "<IsTruncated>false</IsTruncated>")


def _attributes(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}


def _unchunked(body: bytes, headers: dict[str, str]) -> bytes:
    """The content of a body that Amazon's library sends in signed pieces."""
    if "x-amz-decoded-content-length" not in headers:
        return body
    pieces: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def _head(answer: Answer) -> bytes:
    length = len(answer.body) if answer.length is None else answer.length
    fields: dict[str, Any] = {
        "Content-Length": length, "Content-Type": "application/xml", **answer.headers,
    }  # fmt: skip
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _xml(name: str, content: str) -> Answer:
    space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return Answer(body=f'<?xml version="1.0" encoding="UTF-8"?><{name} {space}>{content}</{name}>'.encode())


def _error(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())
