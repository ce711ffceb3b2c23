"""Transforms of rows: a function from Arrow batches to Arrow batches, the same for snapshot and stream.

A table's rules become *stages* (`stages.py`). Stages of Arrow run wherever rows are made, in the driver and
in tasks. What is written in SQL is evaluated by Spark, between them (`spark/sql_stages.py`).
"""
