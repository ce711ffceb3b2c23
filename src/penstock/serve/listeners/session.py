"""One connection of a client that speaks Canal's protocol.

Clients send a request and read one answer, but they read none behind an acknowledgement or a rollback. If one
of these fails, its error is the answer to the next request that has one, and that request is not executed.
So each answer belongs to its request, whatever fails. (Canal sends such an error at once. Its client takes it
for the answer to its next request, and from then on every answer for that of the request before.)

A packet is read with limits on its length and, before the login, on its time. A reader of its own takes
packets from the connection, so that the end of the connection also ends a wait for changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time

from penstock.access.credentials import Denied
from penstock.access.rates import TooMany
from penstock.access.tokens import Rights
from penstock.errors import PenstockError
from penstock.serve.destination import Destination, Destinations
from penstock.serve.filters import BadFilter
from penstock.serve.listeners import packets
from penstock.serve.listeners.access import Access
from penstock.serve.listeners.packets import Packet, PacketType
from penstock.serve.listeners.protobuf import BadPacket
from penstock.serve.subscription import Refused, Subscription

log = logging.getLogger(__name__)

LOGIN_S = 10.0
"""Time from the connection to the end of the login. A client needs some milliseconds."""
LOGIN_BYTES_MAX = 8 * 1024
"""Bytes of a packet before the login: names and a password."""
REQUEST_BYTES_MAX = 64 * 1024
"""Bytes of a packet behind the login. The longest field is a filter."""
WAITING_MAX = 64
"""Requests that a client may send before it has read an answer. Clients send one, and an acknowledgement."""
SEED_BYTES = 8
"""Bytes of the seed with which passwords are scrambled: what clients expect."""
JOINED_BYTES_MAX = 16 * 1024
"""Parts of an answer up to this size are sent together; larger ones from where they are, without a copy."""
WRITE_S = 600.0
"""How long a client may take to read one answer. One that is stopped would keep the batch in memory."""

UNSUPPORTED, UNAUTHORIZED, MISSING, NO_BATCH, FAILED = 400, 403, 401, 402, 404
"""Codes of errors, mostly Canal's. Clients show them and do not tell them apart."""


class Session:
    """A connection of a Canal client. `run` serves it until it ends, and raises nothing."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        destinations: Destinations,
        access: Access,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._destinations = destinations
        self._access = access
        host, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        self._host = str(host)
        self.address = f"{host}:{port}"
        self.logged_in = False
        self._rights = Rights(frozenset())
        self._claimed: set[Subscription] = set()
        self._late: str = ""
        """The error of a request that has no answer."""
        self._unsettled: set[Destination] = set()
        """Destinations at which something was acknowledged that may not be stored yet."""
        self._auto: tuple[Subscription, int] | None = None
        """A batch that counts as acknowledged once the client sends something."""
        self._packets: asyncio.Queue[Packet | BadPacket | None] = asyncio.Queue(WAITING_MAX)
        self._gone = asyncio.Event()
        self._heard = time.monotonic()
        self._working = False

    # `subscription.Owner` -----------------------------------------------------------------------------------

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._working else time.monotonic() - self._heard

    def dismiss(self) -> None:
        log.info("%s: another connection, or another server, takes its place", self.address)
        self.end()

    def end(self) -> None:
        """Ends the connection."""
        self._leave()
        self._writer.transport.abort()

    def _leave(self) -> None:
        """Ends a wait for changes."""
        self._gone.set()
        for one in self._claimed:
            one.wake()

    # the connection -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        pump: asyncio.Task[None] | None = None
        try:
            await asyncio.wait_for(self._login(), LOGIN_S)
            if not self.logged_in:
                return
            pump = asyncio.get_running_loop().create_task(self._pump())
            while (packet := await self._packets.get()) is not None:
                self._working, self._heard = True, time.monotonic()
                if isinstance(packet, BadPacket):
                    raise packet
                await self._answer(packet)
                self._working, self._heard = False, time.monotonic()
        except BadPacket as error:
            log.info("%s sent something that is no packet: %s", self.address, error)
        except (OSError, EOFError, asyncio.TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the server is stopping
        except Exception:
            log.exception("a bug ended the connection of a client")
        finally:
            self._gone.set()
            if pump is not None:
                pump.cancel()
            for one in self._claimed:
                one.release(self)
            self._writer.transport.abort() if self._late_bytes else self._writer.close()

    @property
    def _late_bytes(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > REQUEST_BYTES_MAX

    async def _pump(self) -> None:
        """Puts packets into the queue until the connection ends, and then None."""
        last: BadPacket | None = None
        try:
            while True:
                await self._packets.put(await self._read(REQUEST_BYTES_MAX))
        except BadPacket as error:
            last = error
        except (OSError, EOFError):
            pass
        finally:
            self._leave()
        await self._packets.put(last)
        await self._packets.put(None)

    async def _read(self, bytes_max: int) -> Packet:
        [length] = packets.HEADER.unpack(await self._reader.readexactly(packets.HEADER.size))
        if not 0 <= length <= bytes_max:
            raise BadPacket(f"its length is {length}")
        packet = packets.parse_packet(await self._reader.readexactly(length))
        if packet.compression > 1:
            raise BadPacket("it is compressed, which was not offered")
        return packet

    async def _send(self, *parts: bytes) -> None:
        small: list[bytes] = []
        for part in parts:
            if len(part) < JOINED_BYTES_MAX:
                small.append(part)
                continue
            await self._write(b"".join(small))
            small = []
            await self._write(part)
        await self._write(b"".join(small))

    async def _write(self, data: bytes) -> None:
        self._writer.write(memoryview(data))  # what is not sent at once is copied once less
        if self._writer.transport.get_write_buffer_size():
            await asyncio.wait_for(self._writer.drain(), WRITE_S)

    # login --------------------------------------------------------------------------------------------------

    async def _login(self) -> None:
        seed = bytes(1 + byte % 127 for byte in os.urandom(SEED_BYTES))  # of characters, as in MySQL
        await self._send(packets.handshake(seed))
        packet = await self._read(LOGIN_BYTES_MAX)
        if packet.kind != PacketType.CLIENT_AUTHENTICATION:
            raise BadPacket(f"a login was expected, and not a packet of type {packet.kind}")
        auth = packets.parse_auth(packet.body)
        try:
            self._rights = self._access.user(auth.user, auth.password, seed=seed, address=self._host)
        except Denied as error:
            log.warning("%s: %s", self.address, error)
            await self._send(packets.refused(UNAUTHORIZED, str(error)))
            return
        self.logged_in = True
        if auth.destination and auth.client_id:
            await self._reply(
                self._subscribe(packets.Subscribe(auth.destination, auth.client_id, auth.filter))
            )
        else:
            await self._send(packets.acknowledged())

    # requests -----------------------------------------------------------------------------------------------

    async def _answer(self, packet: Packet) -> None:
        if self._auto is not None:
            subscription, batch_id = self._auto
            self._auto = None
            with contextlib.suppress(Refused):
                subscription.acknowledge(batch_id)
                self._unsettled.update(self._destinations.values())
        match packet.kind:
            case PacketType.CLIENT_ACK | PacketType.CLIENT_ROLLBACK:
                await self._note(packet)
            case PacketType.SUBSCRIPTION:
                await self._reply(self._subscribe(packets.parse_subscribe(packet.body)))
            case PacketType.UNSUBSCRIPTION:
                await self._reply(self._unsubscribe(packets.parse_subscribe(packet.body)))
            case PacketType.GET:
                await self._reply(self._get(packets.parse_get(packet.body)))
            case PacketType.HEARTBEAT:
                await self._send(packets.acknowledged())
            case _:
                await self._send(packets.refused(UNSUPPORTED, f"packet type={packet.kind} is NOT supported!"))

    async def _reply(self, work: object) -> None:
        """Sends the answer of a coroutine that returns its parts, or the error that it raises."""
        assert asyncio.iscoroutine(work)
        await self._settle()
        if self._late:
            work.close()
            answer = [packets.refused(FAILED, self._late)]
            self._late = ""
        else:
            try:
                self._rights.take()
                answer = await work
            except TooMany as error:
                work.close()
                answer = [packets.refused(FAILED, str(error))]
            except (Refused, BadFilter, PenstockError) as error:
                answer = [packets.refused(FAILED, str(error))]
            except OSError as error:  # the disk of the positions
                log.error("positions cannot be stored: %s", error)
                answer = [packets.refused(FAILED, f"positions cannot be stored: {error.strerror}")]
        await self._send(*answer)

    async def _settle(self) -> None:
        """Waits until everything that was acknowledged is stored. Called before the next request is
        answered."""
        unsettled, self._unsettled = self._unsettled, set()
        try:
            for one in unsettled:
                await one.settled()
        except PenstockError as error:
            self._late = self._late or str(error)
        except OSError as error:  # the disk of the positions
            self._late = self._late or f"positions cannot be stored: {error.strerror}"

    async def _note(self, packet: Packet) -> None:
        """An acknowledgement or a rollback, which have no answer."""
        asked = packets.parse_batch(packet.body)
        known = self._destinations.get(asked.destination)
        unknown = known is None or asked.client_id not in known.subscriptions
        if unknown and packet.kind == PacketType.CLIENT_ROLLBACK and asked.batch_id <= 0:
            return  # Java clients do this before they subscribe for the first time
        try:
            subscription = await self._claim(asked.destination, asked.client_id)
            if packet.kind == PacketType.CLIENT_ROLLBACK:
                subscription.roll_back(max(0, asked.batch_id))
            elif asked.batch_id != -1:  # of an empty batch
                subscription.acknowledge(asked.batch_id)
                self._unsettled.add(self._destinations[asked.destination])
        except (Refused, PenstockError) as error:
            self._late = str(error)
        except OSError as error:
            log.error("positions cannot be stored: %s", error)
            self._late = f"positions cannot be stored: {error.strerror}"

    async def _subscribe(self, asked: packets.Subscribe) -> list[bytes]:
        destination = await self._destination(asked.destination, asked.client_id)
        destination.options.tables.narrowed(asked.filter)  # a filter that cannot be used begins nothing
        subscription = destination.subscribed(asked.client_id)
        await self._take(destination, subscription)
        if asked.filter:
            subscription.filter_by(asked.filter)
        await destination.settled()
        return [packets.acknowledged()]

    async def _unsubscribe(self, asked: packets.Subscribe) -> list[bytes]:
        destination = await self._destination(asked.destination, asked.client_id)
        if asked.client_id in destination.subscriptions:
            subscription = await self._claim(asked.destination, asked.client_id)
            self._claimed.discard(subscription)
            subscription.release(self)
            destination.unsubscribe(asked.client_id)
            await destination.settled()
        return [packets.acknowledged()]

    async def _get(self, asked: packets.Get) -> list[bytes]:
        subscription = await self._claim(asked.destination, asked.client_id)
        batch_id, blocks = await subscription.get(asked.size, asked.timeout, self._gone)
        if asked.auto_ack and batch_id != -1:
            self._auto = subscription, batch_id
        return packets.messages(batch_id, blocks)

    async def _claim(self, destination: str, client_id: str) -> Subscription:
        found = await self._destination(destination, client_id)
        subscription = found.existing(client_id)
        await self._take(found, subscription)
        return subscription

    async def _take(self, destination: Destination, subscription: Subscription) -> None:
        await subscription.claim(self, destination.takeover_seconds)
        self._claimed.add(subscription)

    async def _destination(self, name: str, client_id: str) -> Destination:
        if not name or not client_id:
            raise Refused("destination or clientId is null")
        found = self._destinations.get(name)
        if found is None and name in self._rights and (absent := self._destinations.absent(name)):
            raise Refused(absent)
        if found is None or name not in self._rights:
            raise Refused(f"there is no destination {name[:100]!r} for this user")
        await found.served()
        return found
