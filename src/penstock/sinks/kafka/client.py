"""A producer of librdkafka, by its C interface.

The package confluent-kafka brings the library, and its own producer makes an object of Python for each
message, which costs more than everything the library does with it. `produce_array` takes many messages as one
array (`EncodedMessages.records`), so that a message is never an object. All calls release the interpreter.

The functions are those of the library's public header, whose interface has been stable since version 0.9.
Addresses must have 64 bits.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

RECORD_BYTES = 72  # of one `rd_kafka_message_t`, with addresses of 64 bits
_PRODUCER = 0
_COPY, _PARTITION = 0x2, 0x8
_PURGE_QUEUE, _PURGE_IN_FLIGHT = 0x1, 0x2
NOT_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
)  # fmt: skip
"""Errors that a broker, or the client after its answer, has for a topic that another broker has just
created."""
NOT_YET_SECONDS = 0.05
"""Pause between two questions for such a topic."""
_ERROR_BYTES = 512  # of the text that says why a setting is refused: the size that the library recommends
_MILLISECONDS_MAX = 2**31 - 1  # of a C int


class Record(Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", c_int), ("rkt", c_void_p), ("partition", c_int32), ("payload", c_void_p), ("len", c_size_t),
        ("key", c_void_p), ("key_len", c_size_t), ("offset", c_int64), ("_private", c_void_p),
    )  # fmt: skip


assert ctypes.sizeof(Record) == RECORD_BYTES


class _TopicMetadata(Structure):
    """`rd_kafka_metadata_topic_t`."""

    _fields_ = (("topic", c_char_p), ("partitions", c_int), ("_partitions", c_void_p), ("err", c_int))


class _Metadata(Structure):
    """`rd_kafka_metadata_t`, up to what is read here."""

    _fields_ = (
        ("_brokers", c_int), ("_broker", c_void_p), ("topics", c_int), ("topic", POINTER(_TopicMetadata)),
    )  # fmt: skip


_Reported = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Record), c_void_p)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conf_new": (c_void_p, ()),
    "conf_destroy": (None, (c_void_p,)),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_dr_msg_cb": (None, (c_void_p, _Reported)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "destroy": (None, (c_void_p,)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "abort_transaction": (c_void_p, (c_void_p, c_int)),
    "error_code": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "last_error": (c_int, ()),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "topic_destroy": (None, (c_void_p,)),
    "topic_name": (c_char_p, (c_void_p,)),
    "metadata": (c_int, (c_void_p, c_int, c_void_p, POINTER(POINTER(_Metadata)), c_int)),
    "metadata_destroy": (None, (POINTER(_Metadata),)),
    "produce": (c_int, (c_void_p, c_int32, c_int, c_char_p, c_size_t, c_char_p, c_size_t, c_void_p)),
    "produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "poll": (c_int, (c_void_p, c_int)),
    "flush": (c_int, (c_void_p, c_int)),
    "purge": (c_int, (c_void_p, c_int)),
    "outq_len": (c_int, (c_void_p,)),
}  # fmt: skip


class _Library:
    """The functions of the library that confluent-kafka is linked with."""

    def __init__(self) -> None:
        loaded = ctypes.CDLL(cimpl.__file__)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


_library = _Library()


class Producer:
    """A producer of librdkafka. `settings`: those of librdkafka. `reported` is called with the error and the
    topic of each message that was not delivered, by whoever waits. `seconds`: how long it waits for what
    brokers know of a topic. One thread at a time uses a producer. Its errors are `KafkaException`s."""

    def __init__(
        self, settings: Mapping[str, Any], reported: Callable[[KafkaError, str], None], seconds: float
    ) -> None:
        self._seconds = seconds
        self._topics: dict[str, int] = {}
        self._reported = _Reported(lambda _, record, __: reported(*_of_record(record.contents)))
        configuration, why = _library.conf_new(), ctypes.create_string_buffer(_ERROR_BYTES)
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if _library.conf_set(configuration, name.encode(), text.encode(), why, _ERROR_BYTES):
                _library.conf_destroy(configuration)
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, why.value.decode()))
        _library.conf_set_dr_msg_cb(configuration, self._reported)
        self._handle = _library.new(_PRODUCER, configuration, why, _ERROR_BYTES)
        if not self._handle:
            _library.conf_destroy(configuration)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, why.value.decode()))

    def __len__(self) -> int:
        """Number of messages that are not acknowledged, and of reports that were not passed on yet."""
        return int(_library.outq_len(self._handle))

    def init_transactions(self, seconds: float) -> None:
        _check(_library.init_transactions(self._handle, _milliseconds(seconds)))

    def begin_transaction(self) -> None:
        _check(_library.begin_transaction(self._handle))

    def commit_transaction(self, seconds: float) -> None:
        _check(_library.commit_transaction(self._handle, _milliseconds(seconds)))

    def abort_transaction(self, seconds: float) -> None:
        _check(_library.abort_transaction(self._handle, _milliseconds(seconds)))

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        """Takes one message. Raises `BufferError` if there is no room for it."""
        failed = _library.produce(
            self._topic(topic), partition, _COPY, value, len(value or b""), key, len(key or b""), None
        )
        if failed:
            _raise(_library.last_error())

    def produce_array(self, topic: str, records: bytearray, first: int) -> int:
        """Takes the messages of an array from the number `first` on. Each names its partition. What they
        point to must be there until this returns. Returns the number of the first one for which there is no
        room: that of all if there was room."""
        count = len(records) // RECORD_BYTES
        array = (Record * count).from_buffer(records)
        handle = self._topic(topic)
        at = ctypes.addressof(array) + first * RECORD_BYTES
        taken = _library.produce_batch(handle, 0, _COPY | _PARTITION, at, count - first)
        if taken == count - first:
            return count
        for number in range(first, count):
            code = array[number].err
            if code == KafkaError._QUEUE_FULL:
                return number
            if code:
                _raise(code)
        return count

    def poll(self, seconds: float) -> None:
        """Waits for reports."""
        _library.poll(self._handle, _milliseconds(seconds))

    def flush(self, seconds: float) -> None:
        """Waits until all messages are acknowledged."""
        _library.flush(self._handle, _milliseconds(seconds))

    def purge(self) -> None:
        """Discards messages that are not acknowledged."""
        _library.purge(self._handle, _PURGE_QUEUE | _PURGE_IN_FLIGHT)

    def close(self) -> None:
        """Ends the threads of the producer. It is not used again."""
        handle, self._handle = self._handle, None
        if handle:
            for topic in self._topics.values():
                _library.topic_destroy(topic)
            _library.destroy(handle)

    def _topic(self, name: str) -> int:
        """The library's object for a topic. The library must know its partitions before it takes an array:
        it cannot count messages as those of the transaction otherwise."""
        if (known := self._topics.get(name)) is not None:
            return known
        found = _library.topic_new(self._handle, name.encode(), None)
        if not found:
            _raise(_library.last_error())
        deadline = time.monotonic() + self._seconds
        while code := self._unknown(found):
            if code not in NOT_YET or time.monotonic() > deadline:
                _library.topic_destroy(found)
                _raise(code)
            time.sleep(NOT_YET_SECONDS)  # polls a condition, with a limit
        self._topics[name] = found
        return int(found)

    def _unknown(self, topic: int) -> int:
        """Asks brokers for a topic. Returns why they do not know its partitions; 0: they do."""
        metadata = POINTER(_Metadata)()
        milliseconds = _milliseconds(self._seconds)
        if code := _library.metadata(self._handle, 0, topic, ctypes.byref(metadata), milliseconds):
            return int(code)
        found, code = metadata.contents, KafkaError.UNKNOWN_TOPIC_OR_PART
        if found.topics and (found.topic[0].err or found.topic[0].partitions):
            code = found.topic[0].err
        _library.metadata_destroy(metadata)
        return int(code)


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), _MILLISECONDS_MAX)


def _of_record(record: Record) -> tuple[KafkaError, str]:
    return KafkaError(record.err), (_library.topic_name(record.rkt) or b"").decode()


def _raise(code: int) -> None:
    if code == KafkaError._QUEUE_FULL:
        raise BufferError
    raise KafkaException(KafkaError(code))


def _check(error: int | None) -> None:
    if not error:
        return
    found = KafkaError(
        _library.error_code(error),
        (_library.error_string(error) or b"").decode(),
        bool(_library.error_is_fatal(error)),
        bool(_library.error_is_retriable(error)),
        bool(_library.error_txn_requires_abort(error)),
    )
    _library.error_destroy(error)
    raise KafkaException(found)
