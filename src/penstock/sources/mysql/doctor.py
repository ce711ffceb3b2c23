"""What `penstock doctor` looks at: preflight, worst first."""

from __future__ import annotations

from penstock.config import PipelineConfig
from penstock.sources.base import Finding
from penstock.sources.mysql import preflight

_ORDER = {"error": 0, "warning": 1, "ok": 2}


def examine(config: PipelineConfig) -> list[Finding]:
    """Every finding, errors first. Reads only, also while the pipeline runs."""
    return sorted(preflight.check(config), key=lambda finding: _ORDER[finding.level])
