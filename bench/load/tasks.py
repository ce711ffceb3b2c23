"""What is measured of the large table, and under which names."""

from __future__ import annotations

CONNECTIONS = (1, 2, 4)

TO_ARROW = "penstock, to Arrow"
STAGED = "penstock, staged"
KEPT = "penstock, staged, kept"
PIPELINE = "penstock run"
OURS = (TO_ARROW, STAGED, KEPT)

CONNECTORX = "ConnectorX"
SPARK_JDBC = "Spark JDBC"
DEBEZIUM = "Debezium embedded"
FLINK_CDC = "Flink CDC"
PEERS = (CONNECTORX, SPARK_JDBC, DEBEZIUM, FLINK_CDC)

SHARES = {4: "a quarter", 2: "half", 1: "the whole"}
"""Parts of the table that are staged to see how memory grows: divisor and name."""
LAG_BEFORE = "lag of a stream before the snapshot"
LAG_DURING = "lag of a stream during the snapshot"


def load(connections: int) -> str:
    return f"large table, {connections} connection{'' if connections == 1 else 's'}"


LOADS = tuple(load(connections) for connections in CONNECTIONS)


def memory(divisor: int) -> str:
    return f"memory for {SHARES[divisor]} of the table, 2 connections"
