"""Where files live that more than one process, or more than one machine, needs: one protocol for local
directories and object stores.

`base.py` has the protocol and its promises, `opening.py` makes a store from a URL, and `errors.py` says what
can go wrong. `local.py` and `objects.py` are the implementations; `credentials.py` argues how secrets stay
secret.

Staged chunks, what foreign keys did and scratch (`folder.py`), the archive of the relay log, and the data
files and deletion vectors of lake tables (`files.py`) are in stores.
"""
