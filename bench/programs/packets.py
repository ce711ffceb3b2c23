"""The limit of a receiver: the stream of the log is read from a raw socket, and nothing is done with it; with
a file named, the bytes are written there as they come, and made durable.
Arguments: pipeline-file binlog position [file].

The bytes are counted, not even their packets are told apart. The server is asked to end the stream where
its log ends: it sends an end-of-file packet and closes the connection. Timed from the first byte to the last,
or until the last one is durable. As in a receiver the disk works beside the socket, but for a last flush.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor

from penstock import config as configuration
from penstock.sources.mysql.connection import Replication, connect
from penstock.sources.mysql.options import options_of

_BUFFER_BYTES = 1024**2
_SERVER_ID = 94007
_EOF_BYTES = 9
"""Four of the packet's header, five of its body."""
_TIMEOUT_S = 60
_FLUSH_BYTES = 16 * 1024**2


class Nowhere:
    def take(self, data: memoryview) -> None:
        pass

    def end(self) -> None:
        pass


class File:
    """Durable at `end`. Flushed beside the stream; what comes waits for that when it is a piece behind."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._beside = ThreadPoolExecutor(1)
        self._flushes: Future[None] = self._beside.submit(os.fdatasync, self._descriptor)
        self._unflushed = 0

    def take(self, data: memoryview) -> None:
        while data:
            written = os.write(self._descriptor, data)
            self._unflushed, data = self._unflushed + written, data[written:]
        if self._unflushed > _FLUSH_BYTES:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._flushes.result()

    def _flush(self) -> None:
        self._flushes.result()
        self._flushes, self._unflushed = self._beside.submit(os.fdatasync, self._descriptor), 0


def ends(tail: bytes) -> bool:
    """These last bytes look like an end-of-file packet."""
    return len(tail) == _EOF_BYTES and tail[:3] == b"\x05\0\0" and tail[4] == 0xFE


def main() -> None:
    file, binlog, position, *path = sys.argv[1:]
    connection = connect(options_of(configuration.load(file)))
    with connection.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum")
    stream = Replication(connection)  # sets the size of the socket's buffer as for the receiver
    stream.dump(_SERVER_ID, binlog, int(position), block=False)
    socket = connection._sock
    socket.settimeout(_TIMEOUT_S)
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    sink = File(*path) if path else Nowhere()
    socket.recv_into(buffer, 1)
    began, cpu_began = ended, cpu_ended = time.monotonic(), time.process_time()
    size, reads, tail = 1, 1, b""
    while count := socket.recv_into(buffer):
        size, reads = size + count, reads + 1
        tail = (tail + bytes(buffer[max(0, count - _EOF_BYTES) : count]))[-_EOF_BYTES:]
        sink.take(buffer[:count])
        ended, cpu_ended = time.monotonic(), time.process_time()
    stream.close()
    if path:
        sink.end()
        ended, cpu_ended = time.monotonic(), time.process_time()
    if not ends(tail):
        sys.exit(f"Error: the server closed the connection after {size:,} bytes")
    report = {"wall_s": ended - began, "cpu_s": cpu_ended - cpu_began, "bytes": size, "reads": reads}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
