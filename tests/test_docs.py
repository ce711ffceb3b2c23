"""Pages made from code are up to date, and links between pages lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_table_of_types_is_what_the_core_does() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "types_doc.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
