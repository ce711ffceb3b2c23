"""How MySQL and MariaDB read the conditions of partial snapshots."""

from __future__ import annotations

from penstock.sources.conditions import Lexis

LEXIS = Lexis(quotes="'\"`", escaping="'\"", ends=";#\0")
"""Backslashes escape, as in the sessions that read chunks (`snapshot/reader.py` sets their `sql_mode`)."""
