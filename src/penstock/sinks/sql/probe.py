"""What `penstock doctor` tries at the database. It leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.kind import Probe, Probed
from penstock.sinks.sql.dialect import STAGE, Dialect
from penstock.sinks.sql.options import JdbcOptions


def probe(options: JdbcOptions, dialect: Dialect) -> Probe:
    """Connects, makes the control table's schema if it is missing, and a temporary table."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        where = str(options.address)
        session = None
        check = "database"
        try:
            session = dialect.connect()
            yield Probed(check, where, True, "The database answers.")
            check = "database-temporary-table"
            with dialect.watched(session):
                if options.address.product == "mysql":
                    dialect.make_schema(session, options.control)
                dialect.make_stage(session, {"_sequence": "bigint"})
                dialect.run(session, f"DROP TABLE {STAGE}")
            yield Probed(check, where, True, "The account can make temporary tables.")
        except PenstockError as error:
            yield Probed(check, where, False, str(error))
        except dialect.errors as error:
            yield Probed(check, where, False, str(dialect.explained(error, "It failed", None)))
        finally:
            if session is not None:
                session.close()

    return tried
