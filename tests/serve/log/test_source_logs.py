"""The relay logs of a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.errors import START_OVER, LogPurged
from penstock.serve.log.source_log import check_receiver


def test_a_log_that_cannot_be_continued_has_the_cure_of_a_server() -> None:
    """A server has neither `state` nor targets."""

    def ended() -> None:
        raise LogPurged("The source no longer has it.", hint=f"Raise the option, and {START_OVER}")

    with pytest.raises(LogPurged) as error:
        check_receiver(cast(Any, SimpleNamespace(check=ended)))
    assert error.value.hint.startswith("Raise the option, and begin with a new log: move the relay log and")
    assert "sink" not in error.value.hint
