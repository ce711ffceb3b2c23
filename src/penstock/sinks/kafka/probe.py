"""What `penstock doctor` tries at the brokers. It creates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.sinks.kafka.faults import explained, kafka_error
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kind import Probe, Probed


def probe(options: KafkaOptions) -> Probe:
    """Connects and, for `exactly_once`, asks for a transactional id."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        seconds = options.request_timeout / 1000
        settings: dict[str, Any] = {"log_level": "2", **options.client_settings()}
        where = options.bootstrap
        try:
            found = AdminClient(settings).list_topics(timeout=seconds)
        except KafkaException as error:
            fault = explained(kafka_error(error), f"No broker answers at {where}")
            yield Probed("kafka", where, False, f"{fault.message} Check `sink.bootstrap` and `sink.client`.")
            return
        yield Probed(
            "kafka", where, True, f"{len(found.brokers)} brokers answer, {len(found.topics)} topics."
        )
        if options.delivery != "exactly_once":
            return
        try:
            Producer({**settings, "transactional.id": "penstock-doctor"}).init_transactions(seconds)
        except KafkaException as error:
            fault = explained(kafka_error(error), "Transactions are not possible")
            yield Probed("kafka-transactions", where, False, str(fault))
            return
        yield Probed("kafka-transactions", where, True, "The brokers accept transactions of this account.")

    return tried
