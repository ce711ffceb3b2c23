"""The key index of lake tables: in which data file, and in which row of it, a key is.

An entry says "row 17 of this data file has the key with this hash". Data files never change, so an entry
never becomes false. Whether the row is still part of the table is not the index's business: the table's
metadata says which data files are live, and deletion vectors say which of their rows are not. So only a
missing entry could do harm. The index knows the data files that it covers, each with all its rows, and it is
used only when it covers all live ones. It does not matter who wrote a file, or whether somebody has compacted
the table, deleted rows, or rolled it back: files that are not covered yet are read, and entries of files that
are not live are ignored.
"""
