"""Where files live that more than one process, or more than one machine, needs: one protocol for local
directories and object stores.

`base.py` has the protocol and its promises, `opening.py` makes a store from a URL, and `errors.py` says what
can go wrong. `local.py` and `objects.py` are the implementations; `credentials.py` argues how secrets stay
secret.

Nothing else uses it yet. It is made for the archive of the relay log (segments are put once and read by
ranges), staged chunks and scratch (uploads, listings, many deletes), and for the data files and deletion
vectors of lake tables.
"""
