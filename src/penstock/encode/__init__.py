"""Rows of the log as messages of other tools' formats (docs/formats.md). The core writes them."""
