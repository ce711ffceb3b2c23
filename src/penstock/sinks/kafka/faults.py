"""Errors of brokers and of the client, as Penstock's: who acts, and what to do."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from penstock.connections.kafka_codes import CODES
from penstock.connections.verdicts import Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.refusals import at

FENCED = frozenset({
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError._STATE,
})  # fmt: skip
"""The transaction is not this producer's any more, or the producer is in an unusable state."""
_FORBIDDEN = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write and Describe on the transactional id "
    "`penstock-…` (a prefixed ACL)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group `penstock-…` (a prefixed ACL)",
}
_HINTS = {
    **{code: f"Grant this account {rights}." for code, rights in _FORBIDDEN.items()},
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Lower `sink.transaction_timeout`, or raise "
    "`transaction.max.timeout.ms` of the brokers.",
}
_TOO_LARGE = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE,
})  # fmt: skip
_INVALID = {
    KafkaError.INVALID_RECORD: "A compacted topic takes no messages without a key: change its "
    "`cleanup.policy`, or give the table a key.",
    KafkaError.INVALID_TIMESTAMP: "Compare this machine's clock with the brokers', and see "
    "`message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` of the topic.",
}
_INVALID[KafkaError.POLICY_VIOLATION] = _INVALID[KafkaError.INVALID_RECORD]
_VALUE = re.compile(r'Invalid value ".*?"(?= for )', re.DOTALL)
"""Values of settings may be secrets."""


def kafka_error(error: KafkaException) -> KafkaError:
    """The client's error that an exception carries."""
    found: KafkaError = error.args[0]
    return found


def explained(error: KafkaError, what: str) -> PenstockError:
    """The error for something that failed as a whole. `what` begins the message, such as `Epoch 7 was not
    written`."""
    code = error.code()
    if code == KafkaError._INVALID_ARG:
        why = _VALUE.sub("Invalid value", error.str().strip())
        return ConfigError(f"{what}: {why}.", hint="Correct `sink.client`.")
    if code in _HINTS:
        return TargetRefused(f"{what}: {error.str()}.", hint=_HINTS[code])
    if code == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT or code == KafkaError._UNSUPPORTED_FEATURE:
        return ConfigError(
            f"{what}: {error.str()}.",
            hint="Brokers before 0.11 have no transactions: set `sink.delivery: at_least_once`.",
        )
    if CODES.verdict(code) is Verdict.CONFIGURATION:
        return TargetRefused(f"{what}: {error.str()}.", hint="Check the settings in `sink.client`.")
    return TransientError(f"{what}: {error.str()}.", hint="It is tried again until brokers answer.")


def of_table(error: KafkaError, table: TableId, topic: str, address: str) -> PenstockError:
    """The error for a table whose message was refused. `address`: the brokers'."""
    code = error.code()
    if code in _TOO_LARGE:
        return too_large(table, topic, None)
    name = str(table)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return TableError(
            f"The topic {topic} of {table} may not be written: {error.str()}.",
            hint="Grant this account Write and Describe on it (and Create, if it does not exist), then run "
            f"`penstock unpark FILE {argument(table)}`.",
            table=name,
        )
    if code in _INVALID:
        return TableError(
            f"The topic {topic} refuses messages of {table}: {error.str()}.",
            hint=f"{_INVALID[code]} Then run `penstock unpark FILE {argument(table)}`.",
            table=name,
        )
    return explained(error, at(f"A message of {table} was not written to the topic {topic}", address))


def too_large(table: TableId, topic: str, size: int | None) -> TableError:
    """The error for a message that its topic does not take."""
    how = "" if size is None else f" of {size:,} bytes"
    return TableError(
        f"A row of {table} makes a message{how} that is too large for the topic {topic}.",
        hint="Raise `max.message.bytes` of the topic and `sink.message_bytes_max`, restart the pipeline, and "
        f"run `penstock unpark FILE {argument(table)}`: the table continues from here.",
        table=str(table),
    )
