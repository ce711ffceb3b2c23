"""Kafka's error codes: those of brokers, and those of librdkafka. Pure."""

from __future__ import annotations

from confluent_kafka import KafkaError

from penstock.connections.verdicts import Codes, Verdict

CODES = Codes(
    "https://kafka.apache.org/41/design/protocol/#error-codes, and RD_KAFKA_RESP_ERR in librdkafka's "
    "rdkafka.h",
    outage=frozenset(),
    configuration=frozenset({
        KafkaError._INVALID_ARG, KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.ILLEGAL_SASL_STATE, KafkaError.SECURITY_DISABLED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        KafkaError.DELEGATION_TOKEN_EXPIRED, KafkaError.DELEGATION_TOKEN_NOT_FOUND,
        KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.INVALID_REQUIRED_ACKS, KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }),
    poison=frozenset({
        KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP, KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }),
    other=Verdict.OUTAGE,
)  # fmt: skip
"""There are some two hundred codes. Those that are not listed say that something is away, overloaded, changes
its leader, or has expired."""
