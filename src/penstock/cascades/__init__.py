"""Rows that foreign keys change without row events in the log. `keys` says what the keys do and whether a
table can be followed; `parent_changes` extracts the parents' changes. `spark/cascades.py` computes and stages
the consequences."""
