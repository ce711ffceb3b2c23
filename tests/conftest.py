"""Fixtures: real servers (see `penstock.testing.servers`) and one Spark session."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests import cpu, jvm_calls, lake_catalogs, side_by_side
from tests.parts import PARTS, parts_of

from penstock.testing import servers
from penstock.testing.scenario import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.lake.delta.options import DeltaOptions
    from penstock.sinks.lake.iceberg.options import IcebergOptions


# How long an example takes says more about the machine than about the code.
settings.register_profile("untimed", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("untimed")

TESTS = Path(__file__).parent
LONG_FIRST = ("crash", "scenarios", "sinks", "properties", "verify", "relaylog")
"""Folders of files that take long. Where files run side by side, what is begun last should be short."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="show the CPU seconds of each test (tests/cpu.py)")
    parser.addoption("--part", choices=list(PARTS), help="run only this part (tests/parts.py)")
    parser.addoption(
        "--lake-in",
        choices=lake_catalogs.PLACES,
        default=lake_catalogs.DIRECTORY,
        help="where lake tables are (tests/lake_catalogs.py)",
    )


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark interprets its plans. Quick tests have few rows in each of them, so compiling a plan to Java takes
longer than running it: a fifth of all their CPU. Slow tests compile plans, as Spark does for users."""


def pytest_configure(config: pytest.Config) -> None:
    if "not slow" in config.option.markexpr:
        SHORT_LIVED.update(INTERPRETED)
    if config.getoption("--cpu"):
        config.pluginmanager.register(cpu.Cpu())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return side_by_side.ByNeed(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)

    for item in items:
        if marker := item.get_closest_marker("slow_for"):
            own = item.name.partition("[")[2].rstrip("]")
            if any(own == name or own.startswith(f"{name}-") for name in marker.args):
                item.add_marker(pytest.mark.slow)
    if part := config.getoption("part"):
        others = [item for item in items if parts_of(item.path) != [part]]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if parts_of(item.path) == [part]]
    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Sets apart what was imported and collected. All of it stays to the end, and Python would look through
    it again and again for garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        jvm_calls.forget_connection()


def spark_jobs(spark: SparkSession) -> int:
    """Jobs that the session has begun. Spark's lists of them come late, and forget the old ones."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@pytest.fixture(scope="session")
def lake_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of everything `spark` writes; its Iceberg catalog `lake` is at `iceberg` in it."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def iceberg(lake_root: Path, pytestconfig: pytest.Config) -> Iterator[IcebergOptions]:
    """The sink `iceberg` of the whole run."""
    with lake_catalogs.iceberg_in(pytestconfig.getoption("--lake-in"), lake_root) as options:
        yield options


@pytest.fixture(scope="session")
def delta(lake_root: Path, pytestconfig: pytest.Config) -> Iterator[DeltaOptions]:
    """The sink `delta` of the whole run."""
    with lake_catalogs.delta_in(pytestconfig.getoption("--lake-in"), lake_root) as options:
        yield options


@pytest.fixture(scope="session")
def spark(lake_root: Path, iceberg: IcebergOptions, delta: DeltaOptions) -> Iterator[SparkSession]:
    """One session for the whole run, able to write Iceberg and Delta."""
    from penstock.config import SparkConfig
    from penstock.spark.session import session_options, start
    from penstock.testing.scenario import SHORT_LIVED

    config = SparkConfig(
        master="local[2]", app_name="penstock-tests", driver_memory="1200m", conf=SHORT_LIVED
    )
    sinks = [iceberg, delta]
    state, jars_of = lake_root / "state", [*sinks, *lake_catalogs.more_jars_of(iceberg)]
    with pytest.MonkeyPatch.context() as patch:
        # The JVM runs data sources in Python with it. Pipelines in other processes must not get it.
        patch.setenv("PYSPARK_PYTHON", os.environ.get("PYSPARK_PYTHON", sys.executable))
        session = start(session_options(config, sinks, state, jars_of=jars_of), config.master, state)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[servers.MySqlServer | servers.ExternalMySqlServer]:
    """One MySQL for the whole run, shared: leave its settings as they are. `mysql` gives a database in it."""
    with servers.mysql() as server:
        yield server


@pytest.fixture
def mysql(mysql_server: servers.MySqlServer | servers.ExternalMySqlServer) -> Iterator[servers.Database]:
    """A fresh database on the shared server, dropped afterwards."""
    database = servers.Database(mysql_server)
    yield database
    database.drop()


@pytest.fixture(
    scope="session",
    params=[
        name if name == "mysql80" else pytest.param(name, marks=pytest.mark.slow) for name in servers.FLAVORS
    ],
)
def flavor(request: pytest.FixtureRequest) -> Iterator[servers.DatabaseServer]:
    """A test that asks for it runs on each server of `servers.FLAVORS` (but for 8.0: in `make test-all`).

    Shared by the tests of a session: leave its settings as they are. A server that cannot be had fails the
    test.
    """
    with servers.FLAVORS[request.param]() as server:
        yield server


@pytest.fixture
def flavor_database(flavor: servers.DatabaseServer) -> Iterator[servers.Database]:
    """A fresh database on each server of the matrix, dropped afterwards."""
    database = servers.Database(flavor)
    yield database
    database.drop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[servers.KafkaCluster]:
    """One broker for the whole run, shared: leave it running."""
    with servers.kafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def _servers_of_the_module() -> Iterator[Callable[..., servers.MySqlServer]]:
    with ExitStack() as stack:
        yield cache(lambda **options: stack.enter_context(servers.MySqlServer(options)))


@pytest.fixture
def emptied_mysql(
    _servers_of_the_module: Callable[..., servers.MySqlServer],
) -> Callable[..., servers.MySqlServer]:
    """`emptied_mysql(option=value, …)`: the server of this file with these options, as if it was new: without
    databases, accounts and binary log. A tenth of the cost of a new one. Leave its settings as they are, and
    do not stop it."""

    def emptied(**options: Any) -> servers.MySqlServer:
        server = _servers_of_the_module(**options)
        accounts = (
            "SELECT QUOTE(user), QUOTE(host) FROM mysql.user WHERE user NOT REGEXP '^(root|mysql[.].*)$'"
        )
        databases = (
            "SELECT schema_name FROM information_schema.schemata "
            "WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
        )
        server.execute(
            *(f"DROP USER {user}@{host}" for user, host in server.query(accounts)),
            *(f"DROP DATABASE `{name}`" for (name,) in server.query(databases)),
            "RESET MASTER",
        )
        return server

    return emptied


@pytest.fixture
def mysql_factory() -> Iterator[Callable[..., servers.MySqlServer]]:
    """`mysql_factory(option=value, …)`: a private server of the test's own, closed after it. For those that
    stop it, change its settings or need two; others take `emptied_mysql`."""
    with ExitStack() as stack:

        def start(**options: Any) -> servers.MySqlServer:
            return stack.enter_context(servers.MySqlServer(options))

        yield start
