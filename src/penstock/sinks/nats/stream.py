"""The stream: its settings when it is created, and whether those of one that is there will do. Pure."""

from __future__ import annotations

from typing import Any

from penstock.errors import ConfigError
from penstock.sinks.nats.options import NatsOptions

_NS_PER_MS = 1_000_000  # the API counts in nanoseconds
UNLIMITED = -1
_DUPLICATES_NS = 100 * _NS_PER_MS
"""How long the server remembers ids of messages, to leave out repeated ones. The sink does not need that, so
it is short."""


def wanted(options: NatsOptions) -> dict[str, Any]:
    """The settings of a stream that is created, as the server's API has them."""
    return {
        "name": options.stream_name,
        "subjects": list(options.stream_subjects),
        "retention": "limits",
        "storage": options.storage,
        "num_replicas": options.replicas or 1,
        "max_msgs": options.messages_max or UNLIMITED,
        "max_bytes": options.bytes_max or UNLIMITED,
        "max_age": (options.age_max or 0) * _NS_PER_MS,
        "discard": options.discard or "old",
        "duplicate_window": _DUPLICATES_NS,
    }


def bucket(options: NatsOptions) -> dict[str, Any]:
    """The settings of the key-value bucket, as clients of NATS make one."""
    return {
        "name": bucket_stream(options),
        "subjects": [f"$KV.{options.control}.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "storage": "file",
        "num_replicas": options.replicas or 1,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


def bucket_stream(options: NatsOptions) -> str:
    return f"KV_{options.control}"


def check(options: NatsOptions, found: dict[str, Any]) -> None:
    """Raises `ConfigError` if a stream cannot be used, or has other settings than the options that the user
    has set. `found`: its settings."""
    name = options.stream_name
    if found.get("sealed") or found.get("mirror"):
        raise ConfigError(
            f"Nobody can write into the stream {name}, which is sealed or a mirror.",
            hint="Name another `sink.stream`.",
        )
    if found.get("retention", "limits") != "limits":
        raise ConfigError(
            f"The stream {name} removes messages when they are consumed (retention {found['retention']}), so "
            "it cannot tell a new driver what was written.",
            hint="Use a stream with the retention `limits`, from which others can be filled (`sources`).",
        )
    given = {
        "storage": options.storage,
        "num_replicas": options.replicas,
        "max_msgs": options.messages_max,
        "max_bytes": options.bytes_max,
        "max_age": None if options.age_max is None else options.age_max * _NS_PER_MS,
        "discard": options.discard,
    }
    other = [
        f"{setting} is {found.get(setting)}, not {value}"
        for setting, value in given.items()
        if value is not None and found.get(setting) != value
    ]
    missing = [one for one in options.subjects if one not in found.get("subjects", [])]
    other += [f"it has no subject {one}" for one in missing]
    if other:
        raise ConfigError(
            f"The stream {name} has other settings than the section `sink`: {'; '.join(other)}.",
            hint=f"Change it (`nats stream edit {name}`), or leave these options out to use it as it is.",
        )
