"""What the core's parts know of log formats: one format is a folder, and nearly nobody else names it."""

from __future__ import annotations

import pytest
from tests.rust_modules import Crate, Module
from tests.test_style import ROOT

NAMED_BY = {
    "mysql": {
        "python": "it registers the formats, and gives their parts to Python",
        "inspect": "`penstock inspect` shows the events of binlog files",
    },
    "typed_rows": {
        "python": "it registers the formats",
        "inspect": "`penstock inspect` shows the records of its files",
        "debezium_log": "Debezium's messages become a log of this format",
        "pgoutput": "its logs have the same records around the rows",
    },
}
"""Who names the folder of a log format, and why. Everything else is for all formats."""


def naming(uses: dict[Module, set[Module]], folder: str) -> set[str]:
    """The modules (files or folders of `src`) that use a file of a folder."""
    return {
        module[0]
        for module, used in uses.items()
        if module and module[0] != folder and any(other[:1] == (folder,) for other in used)
    }


@pytest.mark.parametrize("folder", NAMED_BY)
def test_what_every_log_format_shares_names_no_format(folder: str) -> None:
    found = naming(Crate(ROOT / "core" / "src").uses, folder)
    assert found <= set(NAMED_BY[folder]), "what depends on a log format belongs into its folder"
    assert found >= set(NAMED_BY[folder]), "remove these exceptions"


def test_a_file_that_names_a_format_is_found() -> None:
    uses: dict[Module, set[Module]] = {
        (): {("mysql",)},
        ("mysql", "span"): {("mysql", "event")},
        ("rows",): {("wire",)},
        ("encode", "image"): {("mysql", "event"), ("rows",)},
    }
    assert naming(uses, "mysql") == {"encode"}
