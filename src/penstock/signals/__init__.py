"""Signals: what an operator tells a running pipeline to do.

A signal `{id, type, data}` comes over a channel (`channels.py`: a file, a table of the source; the command
line, Python and REST write into the state store directly). It counts once it stands in the state store; an id
that is there already is the same signal and is not done twice. `commands.py` says which types there are and
what their data may be; `work.py` does them, one after the other, in the pipeline's loop between two epochs.
What a signal changes becomes durable in one transaction with its own status, so a pipeline that is killed
goes on with it, neither missing it nor doing it again.
"""
