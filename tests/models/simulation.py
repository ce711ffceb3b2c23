"""Runs code with threads, waits and clocks as a simulation: one step at a time, in an order that a seed
chooses, in a time of its own.

A task is a thread, of which one runs at a time. It gives way wherever it waits: `World.wait`. `Threading` and
`Clock` stand in for the modules `threading` and `time` in the code that is simulated, which runs as it is.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

from tests.models.placement_values import Violation


class Killed(BaseException):
    """Ends the tasks of a process that was killed."""


class Process:
    """Tasks that are suspended and killed together. `rate`: how fast its clock goes."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        self.killed = False
        self.suspended_until = 0.0


class Task:
    def __init__(self, process: Process, work: Callable[[], None]) -> None:
        self.process, self.work = process, work
        self.ready: Callable[[], object] = lambda: True
        self.until: float | None = None
        self.turn = threading.Lock()
        self.turn.acquire()
        self.thread: threading.Thread | None = None


class World:
    """`now`: seconds. `late`: the longest pause that a step may make at random."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 1000.0
        self.tasks: list[Task] = []
        self.task: Task | None = None
        self.network = self.booting = Process()
        """`booting`: the process that begins now, to which new tasks belong."""
        self.violation: BaseException | None = None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._main = threading.Lock()
        self._main.acquire()
        self._closing = False
        self.calm = False
        """Whether nothing more goes wrong, and nothing is slow."""

    # for what is simulated ----------------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        begins = self.booting is not self.network
        return self.booting if begins or self.task is None else self.task.process

    def clock(self) -> float:
        """The time, by the clock of the process that asks."""
        return 1000.0 + (self.now - 1000.0) * self.process.rate

    def spawn(self, work: Callable[[], None], process: Process | None = None) -> None:
        self.tasks.append(Task(process or self.process, work))

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), event))

    def wait(self, ready: Callable[[], object], seconds: float | None = None) -> bool:
        """Gives way until the condition is true, or the time is over. Returns the condition."""
        task = self.task
        if task is None:
            return bool(ready())
        task.ready, task.until = ready, None if seconds is None else self.now + seconds
        self.task = None
        self._main.release()
        task.turn.acquire()
        if task.process.killed or self._closing:
            raise Killed
        return bool(ready())

    def pause(self, most: float, least: float = 0.0) -> None:
        self.wait(lambda: False, self.dice.uniform(least, most))

    # the loop -----------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Runs for this time. Raises `Violation`, and what else a task has raised."""
        end = self.now + seconds
        while self.now < end and self.violation is None:
            due = [one for one in self.tasks if self._is_due(one)]
            if self._events and self._events[0][0] <= self.now and (not due or self.dice.random() < 0.5):
                heapq.heappop(self._events)[2]()
            elif due:
                self._resume(self.dice.choice(due))
                if self.dice.random() < 0.05:
                    self.now += self.dice.uniform(0, 0.02)  # the machine does something else
            else:
                times = [at for one in self.tasks if (at := self._due_at(one)) is not None]
                self.now = max(self.now, min([*times, *(at for at, _, _ in self._events[:1]), end]))
        if self.violation is not None:
            raise self.violation

    def _is_due(self, task: Task) -> bool:
        if task.process.killed:
            return True
        if task.process.suspended_until > self.now:
            return False
        return (task.until is not None and task.until <= self.now) or bool(task.ready())

    def _due_at(self, task: Task) -> float | None:
        awake = task.process.suspended_until
        if task.until is not None:
            return max(task.until, awake)
        return awake if awake > self.now else None

    def _resume(self, task: Task) -> None:
        self.task = task
        if task.thread is None:
            task.thread = threading.Thread(target=self._run, args=(task,), daemon=True)
            task.thread.start()
        else:
            task.turn.release()
        self._main.acquire()
        self.task = None

    def _run(self, task: Task) -> None:
        try:
            if not task.process.killed and not self._closing:
                task.work()
        except Killed:
            pass
        except BaseException as error:
            self.violation = self.violation or error
        finally:
            self.tasks.remove(task)
            self._main.release()

    def violated(self, what: str) -> None:
        """Ends the history, also where the code at work catches exceptions."""
        self.violation = self.violation or Violation(what)

    def close(self) -> None:
        self._closing = True
        for task in list(self.tasks):
            while task in self.tasks:
                self._resume(task)


class Threading:
    """The module `threading`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def Thread(self, target: Callable[[], None], **_: Any) -> Any:
        return _Thread(self._world, target)

    def Event(self) -> Any:
        return _Event(self._world)

    def Condition(self) -> Any:
        return _Condition(self._world)


class _Thread:
    def __init__(self, world: World, work: Callable[[], None]) -> None:
        self._world, self._work, self._ended = world, work, False

    def start(self) -> None:
        def run() -> None:
            self._work()
            self._ended = True

        self._world.spawn(run)

    def join(self, seconds: float | None = None) -> None:
        self._world.wait(lambda: self._ended, seconds)


class _Event:
    def __init__(self, world: World) -> None:
        self._world, self._set = world, False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        return self._world.wait(lambda: self._set, seconds)


class _Condition:
    """Nothing gives way while it has the lock, so there is none."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...

    def wait_for(self, ready: Callable[[], object], seconds: float | None = None) -> bool:
        return self._world.wait(ready, seconds)


class Clock:
    """The module `time`."""

    def __init__(self, world: World) -> None:
        self.monotonic = self.time = world.clock
