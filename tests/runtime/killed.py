"""Kills a process with SIGKILL between two steps of the code under test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def killed_before(steps: int, module: ModuleType, names: Sequence[str], work: Callable[[], object]) -> bool:
    """Does the work in a child process, which dies before the call number `steps` (from 0) of one of these
    functions of the module. False: the work ended before."""
    child = os.fork()
    if child == 0:
        left = [steps]

        def counted(function: Any) -> Any:
            def act(*arguments: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return act

        try:
            for name in names:
                setattr(module, name, counted(getattr(module, name)))
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "the work failed"
    return code != 0
