"""The limit of a receiver of PostgreSQL: the stream of the log is read, and nothing is done with it but to
write it to a file. Arguments: pipeline-file how tail-text file.

`how`: `libpq` gives one message at a time, as `pg_recvlogical` gets them. `socket` reads what has come into
one buffer, after libpq has logged in, and does not tell messages apart. Between two reads it waits two
milliseconds for more. Timed from the first byte to the one behind the text of the last row.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

from psycopg import pq

from penstock import config as configuration
from penstock.sources.postgresql.connection import fields
from penstock.sources.postgresql.options import options_of, publication_of, slot_of

_BUFFER_BYTES = 1 << 20
_TIMEOUT_S = 300.0
_PAUSE_S = 0.002


def main() -> None:
    file, how, tail, path = sys.argv[1:]
    config = configuration.load(file)
    known = {name: value for name, value in fields(options_of(config)).items() if value is not None}
    text = " ".join(f"{name}='{value}'" for name, value in {**known, "replication": "database"}.items())
    connection = pq.PGconn.connect(text.encode())
    command = (
        f"START_REPLICATION SLOT {slot_of(config)} LOGICAL 0/0 (proto_version '1', "
        f"publication_names '{publication_of(config)}', messages 'true', binary 'true')"
    )
    pieces: Callable[[pq.abc.PGconn], Iterator[bytes | memoryview]] = {"libpq": messages, "socket": packets}[
        how
    ]
    connection.send_query(command.encode())
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    began = cpu_began = 0.0
    size, count, last, wanted = 0, 0, b"", tail.encode()
    for piece in pieces(connection):
        if not size:
            began, cpu_began = time.monotonic(), time.process_time()
        os.write(out, piece)
        size, count = size + len(piece), count + 1
        last = last[-256:] + bytes(piece[-256:])
        if wanted in last:
            break
    ended, cpu_ended = time.monotonic(), time.process_time()
    report = {
        "began": began, "ended": ended, "wall_s": ended - began, "cpu_s": cpu_ended - cpu_began,
        "bytes": size, "reads": count,
    }  # fmt: skip
    connection.finish()
    print(json.dumps(report), flush=True)


def messages(connection: pq.abc.PGconn) -> Iterator[bytes | memoryview]:
    result = connection.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_BOTH:
        sys.exit(f"Error: {connection.get_error_message()}")
    while True:
        length, data = connection.get_copy_data(1)
        if length > 0:
            yield data
        elif length == 0:
            wait(connection.socket)
            connection.consume_input()
        else:
            sys.exit(f"Error: the stream ended: {connection.get_error_message()}")


def packets(connection: pq.abc.PGconn) -> Iterator[bytes | memoryview]:
    """What the server sends after the command, its answer included."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    while True:
        wait(connection.socket)
        count = os.readv(connection.socket, [buffer])
        if not count:
            sys.exit("Error: the server closed the connection")
        yield buffer[:count]
        if count < _BUFFER_BYTES:
            time.sleep(_PAUSE_S)  # a read of little costs as much as one of much


def wait(socket: int) -> None:
    if not select.select([socket], [], [], _TIMEOUT_S)[0]:
        sys.exit(f"Error: nothing came for {_TIMEOUT_S:g} s")


if __name__ == "__main__":
    main()
