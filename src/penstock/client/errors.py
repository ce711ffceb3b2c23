"""Errors of Flight, as ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from penstock.errors import ConfigError, TransientError
from penstock.printable import printable


@contextlib.contextmanager
def as_ours(address: str) -> Iterator[None]:
    """Turns errors of Flight into ours."""
    try:
        yield
    except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
        raise ConfigError(
            f"The server at {address} refuses: {said(error)}",
            hint="Give a `token`, or `user` and `password`.",
        ) from None
    except (flight.FlightServerError, pa.ArrowInvalid) as error:
        raise ConfigError(f"The server at {address} refuses: {said(error)}") from None
    except (flight.FlightError, pa.ArrowException) as error:
        raise TransientError(
            f"The connection to the server at {address} failed: {said(error)}",
            hint="Connect again. Without TLS on one side only, a connection ends at once, too.",
        ) from None


def said(error: Exception) -> str:
    """The server's own message, without what Flight adds to it."""
    text = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0]
    return printable(text)
