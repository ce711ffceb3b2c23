"""What clients of S3 cost: `python -m bench.store [CLIENT…]`. The figures of decision 17.

The server answers at once and does nothing, so what is measured is the client: CPU time, the time that a
call takes, and the requests that it makes. Each client works in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_SMALL, _LARGE = 10_000, 8 << 20
_CALLS, _LARGE_CALLS = 100, 8
_BODY = bytes(_LARGE)
_ANSWERS = {
    "uploads": b"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId>"
    b"</InitiateMultipartUploadResult>",
    "uploadId": b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>',
}


class NullS3:
    """Answers every request as if it had been done. `requests` counts them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        stream = client.makefile("rb", buffering=1 << 20)
        with contextlib.suppress(OSError):
            while first := stream.readline():
                head = b""
                while (line := stream.readline()) != b"\r\n":
                    head += line
                lower = head.lower()
                if b"expect: 100-continue" in lower:
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._skip(stream, lower)
                self.requests += 1
                client.sendall(self._answer(first.decode(), lower))

    def _skip(self, stream: Any, head: bytes) -> None:
        if b"transfer-encoding: chunked" in head:
            while size := int(stream.readline().split(b";")[0], 16):
                stream.read(size + 2)
            while stream.readline() != b"\r\n":
                pass
        elif found := re.search(rb"(?m)^content-length: *(\d+)", head):
            stream.read(int(found[1]))

    def _answer(self, first: str, head: bytes) -> bytes:
        method, path, _ = first.split(" ", 2)
        size, status, extra = (_LARGE if "large" in path else _SMALL), "200 OK", ""
        if method == "GET":
            if found := re.search(rb"range: *bytes=(\d+)-(\d+)", head):
                start, end = int(found[1]), min(int(found[2]) + 1, size)
                status, extra = "206 Partial Content", f"Content-Range: bytes {start}-{end - 1}/{size}\r\n"
                size = end - start
            body = _BODY[:size]
        else:
            body = next((text for word, text in _ANSWERS.items() if word in path), b"") * (method == "POST")
            size = size if method == "HEAD" else len(body)
        return (
            f'HTTP/1.1 {status}\r\nETag: "e"\r\nLast-Modified: Tue, 24 Nov 2026 10:00:00 GMT\r\n{extra}'
            f"Content-Type: application/xml\r\nContent-Length: {size}\r\n\r\n"
        ).encode() + body


def obstore_calls(url: str) -> dict[str, Callable[[], object]]:
    from obstore.store import S3Store

    store = S3Store("b", endpoint=url, access_key_id="k", secret_access_key="s", region="us-east-1",
                    client_options={"allow_http": True})  # fmt: skip
    return {
        "put 10 kB": lambda: store.put("small", _BODY[:_SMALL], use_multipart=False),
        "put 10 kB if absent": lambda: store.put("small", _BODY[:_SMALL], mode="create"),
        "get 10 kB": lambda: memoryview(store.get_range("small", start=0, end=_SMALL)),
        "put 8 MiB": lambda: store.put("large", _BODY, use_multipart=False),
        "get 8 MiB": lambda: memoryview(store.get_range("large", start=0, end=_LARGE)),
    }


def pyarrow_calls(url: str) -> dict[str, Callable[[], object]]:
    from pyarrow import fs

    store = fs.S3FileSystem(access_key="k", secret_key="s", region="us-east-1", endpoint_override=url)

    def put(name: str, size: int) -> None:
        with store.open_output_stream(f"b/{name}") as file:
            file.write(_BODY[:size])

    def get(name: str, size: int) -> None:
        with store.open_input_file(f"b/{name}") as file:
            assert len(file.read_at(size, 0)) == size

    return {
        "put 10 kB": lambda: put("small", _SMALL),
        "get 10 kB": lambda: get("small", _SMALL),
        "put 8 MiB": lambda: put("large", _LARGE),
        "get 8 MiB": lambda: get("large", _LARGE),
    }


def boto3_calls(url: str) -> dict[str, Callable[[], object]]:
    import boto3

    store = boto3.client("s3", endpoint_url=url, region_name="us-east-1",
                         aws_access_key_id="k", aws_secret_access_key="s")  # fmt: skip

    def get(name: str, size: int) -> None:
        answer = store.get_object(Bucket="b", Key=name, Range=f"bytes=0-{size - 1}")
        assert len(answer["Body"].read()) == size

    return {
        "put 10 kB": lambda: store.put_object(Bucket="b", Key="small", Body=_BODY[:_SMALL]),
        "put 10 kB if absent": lambda: store.put_object(
            Bucket="b", Key="small", Body=_BODY[:_SMALL], IfNoneMatch="*"
        ),
        "get 10 kB": lambda: get("small", _SMALL),
        "put 8 MiB": lambda: store.put_object(Bucket="b", Key="large", Body=_BODY),
        "get 8 MiB": lambda: get("large", _LARGE),
    }


CLIENTS = {"obstore": obstore_calls, "pyarrow.fs": pyarrow_calls, "boto3": boto3_calls}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def work(client: str, url: str) -> None:
    """In a process of its own: prints one line for each kind of call, and waits for a line before each."""
    begun = _cpu_seconds()
    calls = CLIENTS[client](url)
    print(
        json.dumps({"name": "import and open", "cpu_ms": round((_cpu_seconds() - begun) * 1e3)}), flush=True
    )
    for name, call in calls.items():
        call()
        input()
        count = _CALLS if "kB" in name else _LARGE_CALLS
        cpu, walls = _cpu_seconds(), []
        for _ in range(count):
            begun_at = time.perf_counter()
            call()
            walls.append((time.perf_counter() - begun_at) * 1e3)
        each = (_cpu_seconds() - cpu) * 1e3 / count
        found = {"name": name, "calls": count, "ms_p50": round(sorted(walls)[count // 2], 2),
                 "ms_min": round(min(walls), 2), "cpu_ms": round(each, 2)}  # fmt: skip
        print(json.dumps(found), flush=True)
        input()


def main(clients: list[str]) -> None:
    for client in clients:
        server = NullS3()
        command = [sys.executable, "-m", "bench.store", "--work", client, server.url]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert process.stdin is not None and process.stdout is not None
        print(client, process.stdout.readline().strip())
        while process.poll() is None:
            before = server.requests
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                break
            found = json.loads(line)
            found["requests"] = round((server.requests - before) / found["calls"], 1)
            print(f"  {found}", flush=True)
            process.stdin.write("\n")
            process.stdin.flush()
            time.sleep(0.2)
        process.wait(60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1:] or list(CLIENTS))
