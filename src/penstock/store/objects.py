"""A store in S3, Google Cloud Storage or Azure.

**Whose object is it?** The network may lose the answer to a conditional put. The second attempt then meets
the object that the first one wrote, and the server says "exists already". That must not be reported: the
caller would believe that it lost a race that it won. So each conditional put writes a number of its own, 128
bits of chance drawn once per call and the same for all of its attempts, into the object's metadata
(`penstockcall`). When a server says that a condition failed, the object's metadata is read:

- It has our number. Then one of our attempts wrote it, and the call succeeds with the version that is there.
- It has another one, or none. Then somebody else wrote it. Nobody can have our number by chance.
- There is no object. Then the failed condition has an explanation in between (S3 answers 409 while two
  conditional writes meet; or somebody deleted it): `put_if_absent` tries again within its limits, and for
  `put_if_unchanged` the object has changed.

One case remains: our attempt wrote the object, its answer was lost, and before we look somebody replaces or
deletes the object. We then report that we lost. For a key that is never replaced (a segment, a commit) this
cannot happen. For one that is replaced (a pointer), whoever replaced it has seen our content, so its content
may say so. An attempt that is still on its way when the call ends can do no harm later: its condition fails.
Only after `StoreUnavailable` may it still succeed, which is why that error promises nothing.

Bytes and ETag would not do in place of the number: two writers may write equal bytes, and then both would
believe that they won.

**Requests.** One per call. A conditional put that fails needs one more, an upload needs one per part, two
around them and one if its version is wanted, and `delete_many` needs one per 1,000 keys.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.errors import PenstockError, TransientError
from penstock.store.base import Content, Data, ObjectInfo, Version
from penstock.store.clients import Client, Clients, Use
from penstock.store.errors import ObjectChanged, ObjectExists, ObjectMissing, ObjectShorter, StoreUnavailable
from penstock.store.faults import Fault, fault_of
from penstock.store.location import Location, is_key
from penstock.store.multipart import MultipartUpload
from penstock.store.options import StoreOptions
from penstock.store.ranges import spans, within
from penstock.store.retrying import Failed, retried

CALL = "penstockcall"
"""The metadata of an object that says which call wrote it. Azure takes only names that are identifiers."""
RANGES_AT_ONCE = 8
"""Requests that `get_ranges` sends side by side."""
STORES_MAX = 256
"""Pickled stores that a process keeps connections to."""
_PAGE = 1000
"""Objects in one answer to a list: the limit of S3."""

T = TypeVar("T")


class ObjectStore:
    """Implements `base.Store`. Makes no request before it is used."""

    def __init__(self, location: Location, options: StoreOptions) -> None:
        self.location = location
        self.options = options
        self._clients = Clients(location, options)

    def __repr__(self) -> str:
        return f"ObjectStore({self.location})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_opened, (self.location, self.options))

    # writing

    def put(self, key: str, data: Data) -> Version:
        path = self.location.path(key)
        if len(data) > self.options.whole_bytes:
            with self.upload(key) as upload:
                upload.write(data)
                return upload.finish()
        result = self._do(
            lambda client: client.put(path, data, use_multipart=False), "written", key, "write", len(data)
        )
        return self._version(result)

    def put_if_absent(self, key: str, data: Data) -> Version:
        path, call = self.location.path(key), uuid.uuid4().hex

        def attempt(client: Client) -> Version:
            try:
                result = client.put(path, data, mode="create", use_multipart=False, attributes={CALL: call})
                return self._version(result)
            except Exception as error:
                fault = self._fault(error, "written", key)
            if not isinstance(fault.error, ObjectExists):
                raise Failed(fault)
            found = self._written_by(client, key)
            if found is None:
                unclear = f"{self.location.url(key)} could not be written: it appears and disappears."
                raise Failed(Fault(StoreUnavailable(unclear, url=self.location.url(key)), passing=True))
            if found[0] != call:
                raise fault.error
            return found[1].version

        return self._retried(attempt, "write", len(data))

    def put_if_unchanged(self, key: str, data: Data, *, seen: Version) -> Version:
        path, call = self.location.path(key), uuid.uuid4().hex
        mode: Any = {"e_tag": seen.etag}
        if seen.generation:
            mode["version"] = seen.generation

        def attempt(client: Client) -> Version:
            try:
                result = client.put(path, data, mode=mode, use_multipart=False, attributes={CALL: call})
                return self._version(result)
            except Exception as error:
                fault = self._fault(error, "written", key)
            if not isinstance(fault.error, ObjectChanged | ObjectMissing | ObjectExists):
                raise Failed(fault)
            found = self._written_by(client, key)
            if found is None or found[0] != call:
                url = self.location.url(key)
                raise ObjectChanged(f"{url} is no longer the version that was seen.", url=url)
            return found[1].version

        return self._retried(attempt, "write", len(data))

    def upload(self, key: str) -> MultipartUpload:
        path, call = self.location.path(key), uuid.uuid4().hex
        return MultipartUpload(
            self._clients.get("parts"),
            path,
            attributes={CALL: call},
            options=self.options,
            fault=lambda error: self._fault(error, "written", key),
            written=lambda: self._do(lambda client: self._head(client, key, call), "read", key),
        )

    # reading

    def get(self, key: str) -> Content:
        path = self.location.path(key)

        def read(client: Client) -> Content:
            result = client.get(path)
            return Content(self._info(key, result.meta), bytes(result.bytes()))

        return self._do(read, "read", key)

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        if not 0 <= start <= end:
            raise ValueError(f"no range: {start} to {end}")
        if start == end:
            return memoryview(b"")
        path = self.location.path(key)
        data = self._do(lambda client: memoryview(client.get_range(path, start=start, end=end)), "read", key)
        if len(data) != end - start:
            url = self.location.url(key)
            raise ObjectShorter(f"{url} ends before byte {end}: it has {start + len(data)}.", url=url)
        return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        wanted = spans(ranges, self.options.range_gap_bytes)
        if len(wanted) <= 1:
            found = [self.get_range(key, *span) for span in wanted]
        else:
            with ThreadPoolExecutor(min(RANGES_AT_ONCE, len(wanted))) as threads:
                found = list(threads.map(lambda span: self.get_range(key, *span), wanted))
        return within(ranges, wanted, found)

    def stat(self, key: str) -> ObjectInfo:
        path = self.location.path(key)
        return self._do(lambda client: self._info(key, client.head(path)), "read", key)

    def objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        folder = self.location.path(prefix) if prefix else self.location.prefix
        offset = self.location.path(after) if after else None
        cut = len(self.location.prefix) + 1 if self.location.prefix else 0
        while True:
            page, offset = self._page(folder, offset, prefix)
            for meta in page:
                key = meta["path"][cut:]
                if is_key(key):
                    yield self._info(key, meta)
            if len(page) < _PAGE:
                return

    def _page(self, folder: str, offset: str | None, prefix: str) -> tuple[list[Any], str | None]:
        """Begins at the last key each time, so that a page that fails can be tried again."""

        def read(client: Client) -> list[Any]:
            stream = client.list(folder or None, offset=offset, chunk_size=_PAGE)
            found = list(next(iter(stream), []))
            if not found:
                self._check_is_store(client)
            return found

        page = self._do(read, "listed", prefix)
        return page, page[-1]["path"] if page else offset

    def _check_is_store(self, client: Client) -> None:
        """The library below takes a page of HTML for a list without objects. So an empty list counts only if
        its sender also says, as stores do, that an object does not exist."""
        key = uuid.uuid4().hex
        try:
            client.get(self.location.path(key))
        except Exception as error:
            fault = self._fault(error, "listed", "")
            if not isinstance(fault.error, ObjectMissing):
                raise Failed(fault) from None
            if fault.error.details["code"] or self.location.kind == "gcs":  # whose emulators give no code
                return
        raise Failed(Fault(self._stranger(), passing=True))

    # deleting

    def delete(self, key: str) -> None:
        path = self.location.path(key)

        def gone(client: Client) -> None:
            try:
                client.delete(path)
            except FileNotFoundError as error:
                if not isinstance(self._fault(error, "deleted", key).error, ObjectMissing):
                    raise

        self._do(gone, "deleted", key, "write")

    def delete_many(self, keys: Iterable[str]) -> None:
        batch: list[str] = []
        for key in keys:
            self.location.path(key)
            batch.append(key)
            if len(batch) == self.options.delete_batch:
                self._delete_batch(batch)
                batch = []
        if batch:
            self._delete_batch(batch)

    def _delete_batch(self, keys: list[str]) -> None:
        paths = [self.location.path(key) for key in keys]
        try:
            self._do(lambda client: client.delete(paths), "deleted", keys[0], "write")
        except ObjectMissing:  # some stores say so, and leave the rest
            for key in keys:
                self.delete(key)

    # with the library below

    def _do(self, request: Callable[[Client], T], what: str, key: str, use: Use = "read", size: int = 0) -> T:
        def attempt(client: Client) -> T:
            try:
                return request(client)
            except (PenstockError, Failed):
                raise
            except Exception as error:
                raise Failed(self._fault(error, what, key)) from None

        return self._retried(attempt, use, size)

    def _retried(self, attempt: Callable[[Client], T], use: Use, size: int = 0) -> T:
        def between(fault: Fault) -> None:
            if fault.keys_ended:
                self._clients.renew()

        return retried(
            lambda: attempt(self._clients.get(use, size=size)), self.options.retries, between=between
        )

    def _fault(self, error: BaseException, what: str, key: str) -> Fault:
        failure = self._clients.failure(error)
        if failure is not None:
            return Fault(failure, passing=isinstance(failure, TransientError))
        return fault_of(error, what=what, url=self.location.url(key))

    def _written_by(self, client: Client, key: str) -> tuple[str, ObjectInfo] | None:
        """The call that wrote the object, as far as it says so. None: there is no object."""
        try:
            return self._head(client, key, None)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise Failed(self._fault(error, "read", key)) from None

    def _head(self, client: Client, key: str, call: str | None) -> tuple[str, ObjectInfo]:
        """What wrote the object, and what it is. Raises `ObjectMissing` if `call` did not write it."""
        result = client.get(self.location.path(key), options={"head": True})
        found = str(result.attributes.get(CALL, ""))
        if call is not None and found != call:
            url = self.location.url(key)
            raise ObjectMissing(f"{url} was not written by this upload.", url=url)
        return found, self._info(key, result.meta)

    def _info(self, key: str, meta: Any) -> ObjectInfo:
        return ObjectInfo(key, meta["size"], self._version(meta), meta["last_modified"])

    def _version(self, meta: Any) -> Version:
        generation = meta.get("version") if self.location.kind == "gcs" else None
        if not (etag := meta.get("e_tag")):
            raise self._stranger()
        return Version(etag, str(generation or ""))

    def _stranger(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"Something else than a store answers for {self.location.url('')}.",
            hint="Check proxies on the way, and the endpoint.",
        )


@functools.lru_cache(maxsize=STORES_MAX)
def _opened(location: Location, options: StoreOptions) -> ObjectStore:
    """A pickled store again: one for all tasks of a process, because its connections are used again."""
    return ObjectStore(location, options)
