"""What codes of errors of SQL databases mean. Pure.

A code that no table has is about the statement or its rows: it parks the table. Tests compare the tables with
what the servers themselves list (`tests/connections/test_codes.py`).
"""

from __future__ import annotations

from penstock.connections.verdicts import Codes

POSTGRESQL = Codes(
    "https://www.postgresql.org/docs/current/errcodes-appendix.html",
    outage=frozenset({
        "08",  # connection
        "25",  # state of the transaction: read only (25006), failed, idle or running for too long
        "26", "34",  # statements and cursors that a pooler has lost
        "2D",  # end of the transaction
        "40",  # rollback: deadlock, serialization
        "53",  # resources: disk, memory, connections
        "55006", "55P03",  # an object is in use, or locked
        "57",  # intervention: cancelled, shut down, recovery, dropped database, idle session
        "58",  # errors outside PostgreSQL: input and output, files
        "72",  # a snapshot that is too old
        "F0",  # the server's configuration file
        "HV00N", "HV001",  # a foreign server that is away, or memory for it
        "XX000",  # inside the server, also "tuple concurrently updated"
    }),
    configuration=frozenset({
        "28",  # the account
        "0L", "0P",  # grantor, role
        "3D000",  # no such database
        "42501",  # privileges
    }),
    poison=frozenset({
        "40002",  # a constraint at the end of a transaction
        "02", "03", "09", "0A", "0B", "0F", "0Z", "10", "20", "21", "22", "23", "24", "27", "2B", "2F", "38",
        "39", "3B", "3F", "42", "44", "54", "55", "HV", "P0", "XX",
    }),
)  # fmt: skip
"""By SQLSTATE, and by its first two characters, the class."""

MYSQL_RIGHTS = frozenset({1044, 1049, 1142, 1143, 1227, 1370, 3879, 6038})  # also: no such database
MYSQL = Codes(
    "https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html, "
    "https://dev.mysql.com/doc/mysql-errors/8.4/en/client-error-reference.html, "
    "https://mariadb.com/docs/server/reference/error-codes/mariadb-error-code-reference, "
    "https://proxysql.com/documentation/error-codes",
    outage=frozenset({
        0,  # the client's own: no connection
        1015, 1020, 1205, 1206, 1213, 1223, 1402, 1613, 1614, 1689, 3058, 3177, 3197, 3572,  # locks,
        # deadlocks, and rows that were changed
        1004, 1016, 1018, 1021, 1024, 1025, 1026, 1028, 1030, 1114, 3019, 3675,  # full disks, and errors of
        # storage
        1037, 1038, 1041, 1135, 1203, 1226, 1040, 1637, 3015, 3985, 4031,  # memory, threads, connections,
        # limits of use
        1042, 1043, 1080, 1081, 1129, 1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161,
        1184, 1189, 1190,  # network: aborted, cut or not understood
        1047,  # a node of a Galera cluster that is not ready, or an unknown command
        1053, 1077, 1078, 1079, 1105, 1317, 1927, 1928, 3168, 3169,  # shut down, killed, away
        1180, 1181, 1297, 1412, 3100, 3101,  # a commit, or its replication, that failed; a changed definition
        1036, 1207, 1290, 1792, 1836, 1874, 1881, 3032, 3989, 6400,  # read only, or offline
        3633, 3634, 4145, 6141,  # a copy or backup of the server, or a change of its primary, is made
        1969, 3024,  # a limit of time
        2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2009, 2011, 2012, 2013, 2014, 2026, 2027,
        2048, 2050, 2055,  # the client: not connected, lost, out of order
        *range(9000, 9010),  # a proxy that reaches no server (ProxySQL), storage that does not answer (TiDB)
    }),
    configuration=frozenset({
        1045, 1698, 1820, 1862, 1873, 3118, 3955, 4150, 4151, 6126, 6127, 6444,  # the account: password,
        # locked, expired
        1130, 1251, 1275, 2049, 2054, 2058, 2059, 2061, 3159,  # where from, how it proves itself, TLS
        *MYSQL_RIGHTS,
    }),
)  # fmt: skip
"""By the number of an error: of the server below 2000 and from 3000 on, of the client between. 1153
and 2020, a packet that is too large, are about a row."""

SQLITE = Codes(
    "https://www.sqlite.org/rescode.html",
    outage=frozenset({
        "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_SCHEMA", "SQLITE_INTERRUPT",
        "SQLITE_ABORT",
        "SQLITE_NOMEM", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY",
    }),
    configuration=frozenset({
        "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_FORMAT", "SQLITE_NOLFS",
    }),
)  # fmt: skip
"""By the name of the primary code."""

SQLITE_TEXTS = {
    "database is locked": "SQLITE_BUSY",
    "database table is locked": "SQLITE_LOCKED",
    "database schema is locked": "SQLITE_LOCKED",
    "database schema has changed": "SQLITE_SCHEMA",
    "locking protocol": "SQLITE_PROTOCOL",
    "interrupted": "SQLITE_INTERRUPT",
    "out of memory": "SQLITE_NOMEM",
    "database or disk is full": "SQLITE_FULL",
    "disk I/O error": "SQLITE_IOERR",
    "unable to open database file": "SQLITE_CANTOPEN",
    "attempt to write a readonly database": "SQLITE_READONLY",
    "access permission denied": "SQLITE_PERM",
    "not authorized": "SQLITE_AUTH",
    "file is not a database": "SQLITE_NOTADB",
    "file is encrypted": "SQLITE_NOTADB",
    "database disk image is malformed": "SQLITE_CORRUPT",
}
"""How messages of errors begin: Python 3.10 does not tell their codes."""

DUCKDB = Codes(
    "https://duckdb.org/docs/current/clients/python/reference/, of which these are the classes of exceptions",
    outage=frozenset({
        "IOException", "HTTPException", "TransactionException", "ResourceInUseException",
        "OutOfMemoryException", "FatalException",
        "InterruptException", "ConnectionException", "InternalException",
    }),
    configuration=frozenset({
        "not a valid DuckDB database", "SerializationException", "PermissionException",
    }),
)  # fmt: skip
"""By the name of the exception's class."""
