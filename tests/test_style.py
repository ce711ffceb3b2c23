"""The form of the tree, as a check that may only get stricter: exceptions are removed, never added."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from tests.rust_modules import Crate, circles

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "penstock"

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
LINE_LENGTH_MAX = 110

# What is too long today. An entry that is no longer needed must be removed.
LONG_FILES: dict[str, int] = {
    "core/src/charset/tables.rs": 731,  # data, no code
    "core/src/charset/differences.rs": 555,  # data, no code
}
LONG_FUNCTIONS: dict[str, int] = {}
LONG_LINES: set[str] = {
    "core/src/charset/tables.rs",  # data, no code
    "core/src/charset/differences.rs",  # data, no code
}

# The layers, lowest first: a module imports only from its own layer or from lower ones.
LAYERS: list[set[str]] = [
    {"backoff", "clock", "errors", "plugins", "printable", "secret", "steps"},
    {"_core"},
    {"model"},
    {"client"},  # of a subscription server: it needs nothing of ours
    {"access", "artifacts", "connections", "disk", "http"},
    {"failures", "store", "encode/registry", "encode/registry_access"},  # a source reads schemas, too
    {"transforms"},
    {"sinks", "sources/kind", "sources/registry"},  # each sink knows its own options
    {"config"},  # reads the pipeline file with the options of its source and its sink
    {"cascades", "relaylog"},
    {"sources"},
    {"snapshot", "state", "verify"},
    {"encode"},
    {"epochs"},
    {"spark"},
    {"planning"},
    {"changes", "serve", "signals"},
    {"notifications"},
    {"runtime"},
    {"datasource"},  # a pipeline whose target is a query
    {"testing"},
    {"commands"},
    {"cli_file", "cli_logging", "cli_offline"},
    {"cli_cluster", "cli_state"},
    {"cli"},
    {"__main__", "__init__"},  # the package's own: the public API
]
UPWARD_IMPORTS: set[str] = set()


@cache
def python_files() -> list[Path]:
    folders = [ROOT / name for name in ("src", "tests", "bench", "scripts")]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


@cache
def rust_files() -> list[Path]:
    return sorted(path for path in (ROOT / "core").rglob("*.rs") if "target" not in path.parts)


@cache
def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a Python file. Each file is read and parsed once for all tests."""
    return list(ast.walk(ast.parse(text_of(path))))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_of(path: Path) -> str:
    """The text of a file; of a Rust file without the tests at its end."""
    return text_of(path).split("#[cfg(test)]\nmod tests {", 1)[0]


@cache
def imports(path: Path) -> list[str]:
    """Full names of the modules that a file imports, wherever in the file."""
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_files_are_small_rooms() -> None:
    lengths = {name_of(path): len(code_of(path).splitlines()) for path in python_files() + rust_files()}
    too_long = {
        name: lines for name, lines in lengths.items() if lines > LONG_FILES.get(name, FILE_LINES_MAX)
    }
    assert too_long == {}
    assert {name for name in LONG_FILES if lengths.get(name, 0) <= FILE_LINES_MAX} == set(), "remove these"


def test_python_functions_are_short() -> None:
    lengths: dict[str, int] = {}
    for path in python_files():
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{name_of(path)}:{node.name}"
                lengths[name] = max(lengths.get(name, 0), (node.end_lineno or node.lineno) - node.lineno + 1)
    too_long = {
        name: lines for name, lines in lengths.items() if lines > LONG_FUNCTIONS.get(name, FUNCTION_LINES_MAX)
    }
    assert too_long == {}
    assert {name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= FUNCTION_LINES_MAX} == set(), (
        "remove these"
    )


def test_lines_fit() -> None:
    long = [
        f"{name_of(path)}:{number}"
        for path in python_files() + rust_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > LINE_LENGTH_MAX
    ]
    assert [place for place in long if place.split(":")[0] not in LONG_LINES] == []
    assert {place.split(":")[0] for place in long} >= LONG_LINES, "remove these"


LIMIT_NAME = re.compile(
    r"^[A-Z0-9_]*_(MAX|MIN|S|MS|NS|SECONDS|BYTES|ROWS|CHARACTERS|MESSAGES|BITS)$"
    r"|^[A-Z0-9_]*_(ONCE|ATTEMPTS|DEFAULT|KEPT|STEP)$|^_?(RETRY|PAGE)$"
)


def is_numeric(value: ast.expr) -> bool:
    """Whether it is made of numbers: `5`, `64 * 1024**2`, `100, 1000`, `Schedule.steady(2.0)`."""
    leaves = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
    return bool(leaves) and all(isinstance(leaf, int | float) for leaf in leaves)


def test_a_limit_has_its_unit_and_its_reason_beside_it() -> None:
    """In a docstring below the constant, or in a comment on its line. This finds the limits that say nothing
    at all. Whether a text gives the reason is for its reader to judge."""
    found = set()
    for path in package_files():
        lines = text_of(path).splitlines()
        body = ast.parse(text_of(path)).body
        for node, below in itertools.zip_longest(body, body[1:]):
            if not isinstance(node, ast.Assign) or not is_numeric(node.value):
                continue
            explained = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            explained = explained or "# " in lines[node.lineno - 1]
            names = [one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)]
            if not explained and any(map(LIMIT_NAME.match, names)):
                found.add(f"{path.relative_to(PACKAGE)}:{names[0]}")
    assert found == set()


SPARKS = {"pyspark", "py4j"}


def test_pyspark_is_imported_only_where_spark_is_needed() -> None:
    allowed = {"spark", "sinks", "datasource", "testing"}
    found = [
        name_of(path)
        for path in package_files()
        if path.relative_to(PACKAGE).parts[0] not in allowed
        and any(module.split(".")[0] in SPARKS for module in imports(path))
    ]
    assert found == []


def test_every_module_of_spark_names_pyspark() -> None:
    """By an import or an option. What needs no Spark is in the room of what it does."""
    found = [
        name_of(path)
        for path in (PACKAGE / "spark").glob("*.py")
        if path.name != "__init__.py"
        and not any(module.split(".")[0] in SPARKS for module in imports(path))
        and not any(name in text.lower() for text in texts_in(path) for name in SPARKS)
    ]
    assert found == []


def test_only_sinks_know_the_name_of_a_sink() -> None:
    """Whoever else must know something of a sink asks its registration (`SinkKind`)."""
    names = {"iceberg", "delta", "parquet", "console"}
    users = [
        str(path.relative_to(PACKAGE))
        for path in package_files()
        if path.relative_to(PACKAGE).parts[0] not in ("sinks", "testing")
        and any(isinstance(node, ast.Constant) and node.value in names for node in nodes_of(path))
    ]
    assert users == ["cli.py"], "where `penstock demo` offers a choice"


def test_the_pipeline_file_is_read_without_spark_and_arrow() -> None:
    code = "import sys, penstock.config; print({'pyspark', 'pyarrow'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


SOCKET_CALLS = {
    "socket.socket",
    "socket.create_connection",
    "pymysql.connect",
    "pymysql.connections.Connection",
    "_Connection",
    "MySqlConnection",
}


LISTENING_CALLS = {
    "socket.create_server",
    "asyncio.start_server",
    "loop.sock_accept",
    "grpc.aio.server",
    "uvicorn.Server",
    "uvicorn.run",
}


def callers(calls: set[str]) -> list[str]:
    """Files in which one of the functions is called."""
    return [
        str(path.relative_to(PACKAGE))
        for path in package_files()
        if any(isinstance(node, ast.Call) and ast.unparse(node.func) in calls for node in nodes_of(path))
    ]


def test_sockets_are_opened_only_in_the_connection_module() -> None:
    """Errors and types of PyMySQL may be used anywhere."""
    found = [name for name in callers(SOCKET_CALLS) if name.split("/")[0] != "testing"]
    own = [
        "access/door.py",
        "connections/tcp.py",
        "sinks/sql/mysql.py",
        "sources/mysql/connection.py",
    ]
    assert found in (own[:2], own)


def test_only_the_door_and_grpc_listen() -> None:
    assert [name for name in callers(LISTENING_CALLS) if name.split("/")[0] != "testing"] == [
        "access/door.py",
        "serve/listeners/flight.py",
    ]


def test_the_web_framework_is_imported_only_by_the_room_of_http_and_its_pages() -> None:
    users = [
        str(path.relative_to(PACKAGE))
        for path in package_files()
        if any(module.split(".")[0] in ("starlette", "uvicorn", "websockets") for module in imports(path))
    ]
    assert [name for name in users if not name.startswith("http/")] == [
        "runtime/http.py",
        "serve/listeners/events.py",
        "serve/listeners/pages.py",
        "signals/pages.py",
    ]


SOURCES = sorted(
    path.name for path in (PACKAGE / "sources").iterdir() if path.is_dir() and path.name != "__pycache__"
)
MYSQL_ONLY = {
    "commands/schema.py",
    "commands/encode_definitions.py",
    "commands/init.py",  # asks for a server's address, and writes a file for it
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_is_known_only_to_its_own_folder_and_to_commands_about_it(source: str) -> None:
    """Everybody else asks through `sources/base.py`, and the registry loads it by its name."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in package_files()
        if any(module.startswith(f"penstock.sources.{source}") for module in imports(path))
    }
    others = {name for name in users if not name.startswith((f"sources/{source}/", "testing/"))}
    assert others <= (MYSQL_ONLY if source == "mysql" else set())


def outside_of_mysql() -> Iterator[tuple[str, Path]]:
    """Modules that may not know that the source is MySQL or MariaDB."""
    for path in package_files():
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("sources/mysql/", "testing/")) and name not in MYSQL_ONLY:
            yield name, path


def texts_in(path: Path) -> Iterator[str]:
    """The texts in a file that are no docstrings."""
    for node in nodes_of(path):
        parts = () if isinstance(node, ast.Expr) else ast.iter_child_nodes(node)
        yield from (
            one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)
        )


# Who speaks of the binary log and of GTIDs, and why. This list may only shrink.
SPEAKS_OF_BINLOG = {
    "relaylog/segment_format.py",  # the segment formats
    "cli_offline.py",  # help of `penstock inspect`
    "datasource/definitions.py",  # what `mysql_cdc` needs of a server
    "sources/registry.py",  # the name of a segment format
    "encode/canal_entry.py",  # fields of messages, as their tools name them
    "encode/schema_changes.py",
    "encode/statements.py",
}


def test_positions_and_transactions_of_the_source_are_opaque() -> None:
    """Docstrings and comments count, too."""
    word = re.compile("binlog|binary log|gtid", re.IGNORECASE)
    assert {name for name, path in outside_of_mysql() if word.search(text_of(path))} == SPEAKS_OF_BINLOG


# Folders whose SQL is Spark's, which quotes names in the same way.
SPARK_SQL = ("spark/", "sinks/")


def test_only_the_source_writes_its_sql() -> None:
    doubled = {name for name, path in outside_of_mysql() if "``" in texts_in(path)}
    own_names = {"model/name.py"}  # names of tables, as people write them in pipeline files
    assert {name for name in doubled if not name.startswith(SPARK_SQL)} == own_names
    sql = re.compile(r"\b(ALTER TABLE|CREATE TABLE|GRANT [A-Z]+|SET GLOBAL|SHOW [A-Z]+|information_schema)\b")
    found = {name for name, path in outside_of_mysql() if any(map(sql.search, texts_in(path)))}
    own_database = {"state/layout.py"}  # the pipeline's own, in SQLite
    speaks_sql = (*SPARK_SQL, "sources/postgresql/")
    assert {name for name in found if not name.startswith(speaks_sql)} == own_database


# Types that have no second meaning, as `date` or `text` would.
TYPE_NAMES = {
    "tinyint", "smallint", "mediumint", "varchar", "varbinary", "datetime", "tinytext", "mediumtext",
    "longtext", "tinyblob", "mediumblob", "longblob",
}  # fmt: skip


def test_the_types_of_columns_are_named_in_one_place() -> None:
    """Everybody else asks for the groups of `model/column_type.py`."""
    users = {name for name, path in outside_of_mysql() if not TYPE_NAMES.isdisjoint(texts_in(path))}
    assert users == {
        "model/column_type.py",
        "sinks/sql/mysql.py",  # types of the target's own
        "sinks/sql/postgresql.py",
        "sinks/sql/sqlite.py",
        "spark/training_run.py",  # a table that is made up, to load classes of Spark before they are needed
    }


@pytest.mark.parametrize("module", ["penstock.config", "penstock.spark.epochs"])
def test_a_pipeline_file_is_read_and_its_epochs_are_written_without_its_source(module: str) -> None:
    code = f"import sys, {module}; print([m for m in sys.modules if 'penstock.sources.mysql' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_mysql_driver_is_imported_only_by_the_mysql_source_and_the_mysql_sink() -> None:
    users = [
        name_of(path)
        for path in package_files()
        if not path.relative_to(PACKAGE).as_posix().startswith(("sources/mysql/", "sinks/sql/", "testing/"))
        and any(module.split(".")[0] == "pymysql" for module in imports(path))
    ]
    assert users == []


def layer_of(parts: Sequence[str]) -> int | None:
    """Of a module below `penstock`. A file may have another layer than the rest of its folder."""
    for name in ("/".join(parts[:2]), parts[0]):
        for number, layer in enumerate(LAYERS):
            if name in layer:
                return number
    return None


def test_imports_point_one_way() -> None:
    upward = set()
    for path in package_files():
        own = path.relative_to(PACKAGE).with_suffix("").parts
        own_layer = layer_of(own)
        assert own_layer is not None, f"{name_of(path)}: give `{own[0]}` a place in LAYERS"
        for module in imports(path):
            parts = module.split(".")
            if parts[0] == "penstock" and len(parts) > 1 and (layer_of(parts[1:]) or 0) > own_layer:
                upward.add(f"{name_of(path)} imports {module}")
    assert upward <= UPWARD_IMPORTS
    assert upward >= UPWARD_IMPORTS, "remove these exceptions"


def test_files_of_the_core_use_each_other_one_way() -> None:
    """Two files that need each other are one file, or what they share belongs into a third."""
    assert circles(Crate(ROOT / "core" / "src").uses) == []


def test_a_circle_between_rust_files_is_found_through_re_exports_and_nested_uses(tmp_path: Path) -> None:
    files = {
        "lib.rs": "pub mod a;\npub mod b;\npub mod c;\n",
        "a.rs": "use crate::{b::Thing, c};\n#[cfg(test)]\nmod tests {\n    use crate::c::walk;\n}\n",
        "b/mod.rs": "mod thing;\npub use thing::{Thing as Thing, Other};\n// use crate::a;\n",
        "b/thing.rs": 'fn other(_: super::super::c::Walk) { "crate::a"; }\n',
        "c.rs": "pub struct Walk;\n",
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    uses = Crate(tmp_path).uses
    assert uses[("a",)] == {("b", "thing"), ("c",)}
    assert uses[("b", "thing")] == {("c",)}
    assert circles(uses) == []
    (tmp_path / "c.rs").write_text("use crate::b::Other;\n")
    assert circles(Crate(tmp_path).uses) == [["b::thing", "c"]]


def test_the_nouns_know_only_each_other_errors_and_how_to_write_names() -> None:
    found = {
        module
        for path in (PACKAGE / "model").rglob("*.py")
        for module in imports(path)
        if module.startswith("penstock")
        and not module.startswith(("penstock.model", "penstock.errors", "penstock.printable"))
    }
    assert found == set()


@pytest.mark.parametrize("word", ["utils", "common", "helpers", "misc", "manager"])
def test_no_module_is_a_bucket(word: str) -> None:
    assert [name_of(path) for path in PACKAGE.rglob(f"{word}*")] == []


def test_every_tracked_text_file_ends_with_a_newline() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [
        name for name in listed.stdout.split("\n") if name.endswith((".py", ".pyi", ".rs", ".md", ".toml"))
    ]
    paths = [ROOT / name for name in names if (ROOT / name).exists()]
    assert [name_of(path) for path in paths if (data := path.read_bytes()) and not data.endswith(b"\n")] == []


CODE_FROM_TEXT = {
    "eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "pickle.loads",
    "pickle.load", "marshal.loads", "subprocess.getoutput",
}  # fmt: skip


def test_no_text_is_run_as_code_or_unpickled() -> None:
    """What comes from a source, a file or a request is data."""
    assert callers(CODE_FROM_TEXT) == []
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    users = [
        name_of(path)
        for path in package_files()
        if any(module.split(".")[0] in modules for module in imports(path))
        or any(isinstance(node, ast.keyword) and node.arg == "shell" for node in nodes_of(path))
    ]
    assert users == []


def test_commands_print_only_through_what_makes_the_text_of_others_safe() -> None:
    """The demo shows tables of its own, and `prepare` those of nobody."""
    printing = [
        name
        for name in callers({"print", "Console", "Text.from_markup", "Text.from_ansi", "sys.stdout.write"})
        if name.startswith("commands/")
    ]
    assert printing == ["commands/demo.py", "commands/prepare.py", "commands/terminal.py"]
