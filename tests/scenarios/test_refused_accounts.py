"""Accounts at a real SQL target whose password or rights are changed while a pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.testing import servers
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Target:
    """A server at which `sink` is the pipeline's account. `execute` is its administrator's."""

    url: str
    execute: Callable[..., list[Any]]
    set_password: str
    end_sessions: str
    revoke: str
    grant: str


def postgresql() -> Iterator[Target]:
    with servers.postgresql() as server:

        def execute(*statements: str) -> list[Any]:
            user, password = server.user, server.password
            with psycopg.connect(server.url, user=user, password=password, autocommit=True) as admin:
                for one in statements:
                    done = admin.execute(one)
                return done.fetchall() if done.description else []

        execute(f"CREATE ROLE sink LOGIN; GRANT CREATE ON DATABASE {server.database} TO sink")
        yield Target(
            server.url, execute, "ALTER ROLE sink PASSWORD '{}'",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'sink'",
            "REVOKE INSERT, UPDATE, DELETE ON \"{}\".\"{}\" FROM sink",
            "GRANT INSERT, UPDATE, DELETE ON \"{}\".\"{}\" TO sink",
        )  # fmt: skip


def mysql() -> Iterator[Target]:
    with servers.MySqlServer({}) as server:

        def execute(*statements: str) -> list[Any]:
            for one in statements[:-1]:
                server.execute(one)
            if not statements[-1].startswith("SELECT"):
                server.execute(statements[-1])
                return []
            found = server.query(statements[-1])
            if "processlist" in statements[-1]:
                server.execute(*(f"KILL {number}" for (number,) in found))
            return found

        execute("CREATE USER sink", "GRANT ALL ON penstock.* TO sink", "GRANT ALL ON `s%`.* TO sink")
        yield Target(
            f"mysql://{server.host}:{server.port}", execute,
            "ALTER USER sink IDENTIFIED WITH mysql_native_password BY '{}'",
            "SELECT id FROM information_schema.processlist WHERE user = 'sink'",
            "REVOKE INSERT ON `s%`.* FROM sink", "GRANT INSERT ON `s%`.* TO sink",
        )  # fmt: skip


TARGETS = {"postgresql": postgresql, "mysql": mysql}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from TARGETS[request.param]()


def pipeline_into(scenario: Callable[..., Scenario], target: Target, file: Path) -> Scenario:
    case = scenario("jdbc", epoch={"interval": "50ms"}, retries={"wait_max": "1s"})
    case.options["sink"] = {
        "type": "jdbc", "url": target.url, "user": "sink", "password": {"file": str(file)},
        "namespace": f"s_{case.database}",
    }  # fmt: skip
    case.options["name"] = case.database
    case.write_file()
    return case


def rows(target: Target, case: Scenario, table: str) -> list[tuple[int, int]]:
    quote = '"' if target.url.startswith("postgresql") else "`"
    place = ".".join(f"{quote}{name}{quote}" for name in (f"s_{case.database}", table))
    return [tuple(row) for row in target.execute(f"SELECT id, v FROM {place} ORDER BY id")]


def waits(case: Scenario, told: str) -> bool:
    return any(told in one["reason"] and one["since"] for one in case.status()["retrying"])


def parked(case: Scenario) -> list[dict[str, Any]]:
    return [one for one in case.status()["tables"] if one["status"] == "parked"]


def test_a_password_that_is_changed_is_waited_for_and_read_again(
    scenario: Callable[..., Scenario], target: Target, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    target.execute(target.set_password.format("other"))
    case = pipeline_into(scenario, target, file)
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)")
    refusal(case.command("run", "--once"), "refuses", "sink.password")
    target.execute(target.set_password.format("first"))
    with case.running() as pipeline:
        case.drain(pipeline)
        target.execute(target.set_password.format("second"), target.end_sessions)
        case.server.execute("INSERT INTO a VALUES (2, 2)")
        wait_for(lambda: waits(case, "refuses th"), "the refusal in the status")
        file.unlink()
        wait_for(lambda: waits(case, str(file)), "the missing file in the status")
        assert rows(target, case, "a") == [(1, 1)] and pipeline.alive
        file.write_text("second\n")
        case.drain(pipeline)
        assert rows(target, case, "a") == [(1, 1), (2, 2)]
        assert case.status()["retrying"] == [] and pipeline.starts == 1
        assert not parked(case)
        assert pipeline.stop() == 0


def test_a_right_that_is_revoked_is_waited_for_or_parks_the_one_table_that_lacks_it(
    scenario: Callable[..., Scenario], target: Target, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("first")
    target.execute(target.set_password.format("first"))
    case = pipeline_into(scenario, target, file)
    schema = f"s_{case.database}"
    for name in ("a", "b"):
        case.server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1)"
        )
    with case.running() as pipeline:
        case.drain(pipeline)
        target.execute(*(target.revoke.format(schema, name) for name in ("a", "b")), target.end_sessions)
        case.server.execute("INSERT INTO a VALUES (2, 2)")
        wait_for(lambda: any(one["attempts"] > 6 for one in case.status()["retrying"]), "seven attempts")
        target.execute(*(target.grant.format(schema, name) for name in ("a", "b")), target.end_sessions)
        case.drain(pipeline)
        assert rows(target, case, "a") == [(1, 1), (2, 2)]
        if target.url.startswith("postgresql"):
            target.execute(target.revoke.format(schema, "a"))
            case.server.execute(
                "BEGIN", "INSERT INTO a VALUES (3, 3)", "INSERT INTO b VALUES (3, 3)", "COMMIT"
            )
            wait_for(lambda: parked(case), "a parked table")
            case.server.execute("INSERT INTO b VALUES (4, 4)")
            case.drain(pipeline)
            assert rows(target, case, "b") == [(1, 1), (3, 3), (4, 4)]
            [one] = parked(case)
            assert one["table"] == f"{case.database}.a"
            assert "GRANT" in one["parked"]["hint"] and "unpark" in one["parked"]["hint"]
        assert pipeline.stop() == 0
