"""An upload to an object store in parts.

The library below sends the parts and repeats those that fail, with the limits of `Retries`. Two answers need
more than that:

- The answer to the last request, which makes an object of the parts, may be lost, or say that there is no
  such upload because the attempt before had completed it. The object's metadata decides, as for conditional
  puts (`objects.py`): if it has this upload's number, the upload has succeeded.
- That request may be answered with 200 and an error in the body. The library knows that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import obstore
from typing_extensions import Self

from penstock.errors import InternalError, PenstockError
from penstock.store.base import Data, ObjectInfo, Version
from penstock.store.clients import Client
from penstock.store.faults import Fault
from penstock.store.options import StoreOptions


class MultipartUpload:
    """Implements `base.Upload`. An object shorter than a part is sent with one request."""

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        attributes: Mapping[str, str],
        options: StoreOptions,
        fault: Callable[[BaseException], Fault],
        written: Callable[[], tuple[str, ObjectInfo]],
    ) -> None:
        """`written`: what the object is; raises `ObjectMissing` if this upload did not write it."""
        self._fault = fault
        self._written = written
        self._part_bytes = options.part_bytes
        self._version: Version | None = None
        self._ended = False
        self._complete = False
        self._writer: Any = obstore.open_writer(
            client,
            path,
            attributes=dict(attributes),
            buffer_size=options.part_bytes,
            max_concurrency=options.parts_at_once,
        )

    def write(self, data: Data) -> None:
        self._check_open()
        view = memoryview(data).cast("B")
        try:
            for start in range(0, len(view), self._part_bytes):
                self._writer.write(view[start : start + self._part_bytes])
        except Exception as error:
            fault = self._fault(error)
        else:
            return
        self.abort()
        raise fault.error

    def finish(self) -> Version:
        if self._version is None:
            self._version = self._learned(None if self._complete else self._closed())
        return self._version

    def complete(self) -> None:
        if self._complete:
            return
        if (fault := self._closed()) is not None:
            self._version = self._learned(fault)
        self._ended = self._complete = True

    def _closed(self) -> Fault | None:
        """The error that happened when the parts were made an object."""
        self._check_open()
        try:
            self._writer.close()
        except Exception as error:
            return self._fault(error)
        return None

    def _learned(self, fault: Fault | None) -> Version:
        """The object's version. Raises the error of `fault` if this upload did not write it."""
        try:
            version = self._written()[1].version
        except PenstockError as error:
            self.abort()
            raise (error if fault is None else fault.error) from None
        self._ended = self._complete = True
        return version

    def abort(self) -> None:
        if self._ended:
            return
        self._ended = True
        reason = InternalError("The upload was given up.")
        with contextlib.suppress(Exception):  # parts that stay are removed by the bucket's life-cycle rule
            self._writer.__exit__(type(reason), reason, None)

    def _check_open(self) -> None:
        if self._ended:
            raise InternalError("An upload was used after its end.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif not self._ended:
            self.complete()
