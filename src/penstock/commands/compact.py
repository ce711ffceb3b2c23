"""`penstock compact FILE [TABLE…]`: rewrites small files and files of deletes, so that reads get cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from penstock import config as configuration
from penstock.commands.terminal import say_json
from penstock.commands.verify import choose
from penstock.commands.working import Working
from penstock.errors import ConfigError
from penstock.failures.messages import explained
from penstock.runtime.describe import ensure_run
from penstock.sinks.base import Ours, table_sink
from penstock.state import StateStore
from penstock.steps import step


def compact(file: Path, tables: Sequence[str], *, as_json: bool) -> None:
    """Rewrites the files of these tables (default: all) and prints the numbers of files. Safe while the
    pipeline runs. Raises `ConfigError` if the sink is a change log."""
    from penstock.sinks.registry import own_names
    from penstock.spark.opened_sink import open_sink
    from penstock.spark.session import build_session

    config = configuration.load(file)
    ensure_run(config)
    if not config.sink_kind.keeps_tables:
        raise ConfigError(
            f"The sink {config.sink.type} is a change log, whose files are not compacted.",
            hint=f"`penstock compact` works with the sink {own_names(lambda kind: kind.keeps_tables)}.",
        )
    done = {}
    with closing(StateStore(config.state)) as state, Working("opening the state") as working:
        chosen = choose(state, tables)
        spark = build_session(config.spark, config.sink, config.state / "compact")
        with ExitStack() as stack:
            stack.enter_context(explained("The tables could not be compacted", config.state / "compact"))
            stack.callback(spark.stop)
            opened = open_sink(config, spark, state.uuid)
            sink = table_sink(stack.enter_context(closing(opened)))
            for table in (one.table for one in chosen):
                if not isinstance(sink.open(table), Ours):
                    continue
                step("compacting %s", table)
                found = sink.compact(table)
                done[str(table)] = {
                    "files_before": found.before, "files_after": found.after, "orphans": found.orphans,
                }  # fmt: skip
                if not as_json:
                    orphans = f"; removed {found.orphans:,} that no version names" if found.orphans else ""
                    working.say(f"{table}: {found.before:,} files, now {found.after:,}{orphans}")
    if as_json:
        say_json({"tables": done})
