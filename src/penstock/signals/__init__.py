"""Signals: commands of an operator to a running pipeline.

A signal `{id, type, data}` arrives over a channel (`channels.py`: a file, a table of the source) or is
written to the state store directly (command line, Python, REST). It counts once it is in the state store. A
second signal with the same id is ignored. `commands.py` defines the types and their data. `work.py` executes
signals in order, in the pipeline's loop between two epochs. The changes of a signal become durable in one
transaction with its status. So a killed pipeline neither loses a signal nor executes it twice.
"""
