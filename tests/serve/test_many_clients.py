"""Eight clients with random acknowledgements, rollbacks and disconnects, while the source writes."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.serve.conftest import Shop
from tests.serve.entry import CanalEntry
from tests.serve.raw_client import RawClient
from tests.serve.serving import rows_of

CLIENTS = 8


def symbols(entries: list[bytes]) -> list[str]:
    """`B`, `E`, or the id of the row."""
    found = []
    for one in entries:
        kind = CanalEntry.Entry.FromString(one).entryType
        found.append(rows_of([one])[0][3]["id"] if kind == 2 else "?BRE"[kind])
    return found


class Written:
    """What the source has written, in order: the oracle."""

    def __init__(self, shop: Shop, transactions: int, seed: int) -> None:
        self.all: list[str] = []
        self._shop = shop
        self._sizes = [random.Random(seed).choice((1, 1, 2, 3, 12)) for _ in range(transactions)]
        row = 0
        for size in self._sizes:
            self.all += ["B", *(str(number) for number in range(row + 1, row + size + 1)), "E"]
            row += size

    def write(self) -> None:
        row = 0
        for size in self._sizes:
            self._shop.insert(row + 1, row + size)
            row += size


class RandomClient:
    """Each batch must be what follows the one before it, or the place of the last acknowledgement or
    rollback. What was acknowledged never comes again."""

    def __init__(self, shop: Shop, number: int, written: Written, seed: int) -> None:
        self._shop, self._written = shop, written
        self._id = f"client-{number}"
        self._random = random.Random(seed * 100 + number)
        self._acknowledged = self._next = 0
        self._outstanding: list[tuple[int, int, int]] = []
        self._connect()

    def _connect(self) -> None:
        self._client = RawClient(self._shop.address, client_id=self._id, destination=self._shop.destination)
        self._client.subscribe()
        self._back_to(0)

    def _back_to(self, batch: int) -> None:
        self._next = self._outstanding[batch][1] if batch < len(self._outstanding) else self._next
        del self._outstanding[batch:]

    def run(self) -> None:
        while self._acknowledged < len(self._written.all):
            match self._random.choice(("get", "get", "get", "acknowledge", "acknowledge", "back", "again")):
                case "get":
                    self._get(self._random.choice((1, 2, 5, 8, 40)))
                case "acknowledge" if self._outstanding:
                    batch, _, end = self._outstanding.pop(0)
                    self._client.acknowledge(batch)
                    self._acknowledged = end
                case "back" if self._outstanding and self._random.random() < 0.3:
                    chosen = self._random.randrange(len(self._outstanding))
                    self._client.roll_back(self._outstanding[chosen][0] if chosen else 0)
                    self._back_to(chosen)
                case "again" if self._random.random() < 0.1:
                    self._client.close()
                    self._connect()
        assert self._client.get(10, 100) == (-1, [])
        self._client.close()

    def _get(self, size: int) -> None:
        batch, entries = self._client.get(size, 300)
        if batch == -1:
            return
        found = symbols(entries)
        end = self._next + len(found)
        assert 0 < len(found) <= size
        assert found == self._written.all[self._next : end], self._id
        if found[-1] != "E":  # the rest of this transaction alone is larger than the size
            begin = self._next
            assert self._written.all.index("E", begin) - begin + 1 > size
        self._outstanding.append((batch, self._next, end))
        self._next = end


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))])
def test_each_sees_every_change_in_order_and_none_after_it_was_acknowledged(shop: Shop, seed: int) -> None:
    written = Written(shop, 60 if seed == 1 else 300, seed)
    writer = threading.Thread(target=written.write)
    clients = [RandomClient(shop, number, written, seed) for number in range(CLIENTS)]
    writer.start()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(one.run) for one in clients]:
            done.result()
    writer.join()
