"""Rows that a foreign key changes without row events in the log: `keys` says what the keys do and when they
can be followed, `changes` what their parents did. `spark/cascades.py` works out and stages the
consequences."""
