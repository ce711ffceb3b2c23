"""Checks brokers and topics before a pipeline starts."""

from __future__ import annotations

from contextlib import closing

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.sources.debezium.connection import Topics
from penstock.sources.debezium.options import DebeziumOptions
from penstock.sources.preflight import Finding


class DebeziumPreflight:
    """`sources.preflight.Preflight`."""

    def __init__(self, config: PipelineConfig, source: DebeziumOptions) -> None:
        self._config = config
        self._source = source

    def check(self, config: PipelineConfig) -> list[Finding]:
        address = self._source.bootstrap
        try:
            with closing(Topics(self._source)) as topics:
                _, found = topics.find()
                settings = topics.settings(found)
                places = [(name, number) for name, count in found.items() for number in range(count)]
                bounds = topics.bounds(places)
        except PenstockError as error:
            return [Finding("error", "connection", address, str(error))]
        findings = [Finding("ok", "connection", address, f"{len(found)} topics match.")]
        if not found:
            patterns = ", ".join(self._source.topics)
            findings.append(
                Finding(
                    "warning", "topics", address,
                    f"No topic matches {patterns}. The pipeline waits for one. `source.topics` has the names "
                    "of topics: usually the connector's `topic.prefix`, the database and the table.",
                )
            )  # fmt: skip
        for name, count in found.items():
            deleted = max(bounds[name, number].first for number in range(count)) > 0 if count else False
            policy = settings.get(name, {}).get("cleanup.policy", "")
            if deleted and "delete" in policy and self._source.start == "earliest":
                findings.append(
                    Finding(
                        "warning", "retention", name,
                        f"The oldest messages of topic {name} were deleted. If they had rows of Debezium's "
                        "snapshot, a new pipeline lacks these rows. Let Debezium send them again (its signal "
                        "`execute-snapshot`), and give the topic a longer `retention.ms`, or "
                        "`cleanup.policy=compact`.",
                    )
                )  # fmt: skip
            else:
                findings.append(Finding("ok", "retention", name, f"{count} partitions."))
        return findings

    def check_start(self) -> None:
        """The receiver checks the positions of its log."""
