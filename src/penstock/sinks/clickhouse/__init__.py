"""The sink `clickhouse`: each row is the newest version in a ReplacingMergeTree."""
