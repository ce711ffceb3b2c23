"""`python -m tests.chaos.worker FOLDER`: plays the seeds that come on stdin, a source and a seed a line; each
verdict is a JSON line on stdout. A process of its own, so that a seed that hangs can be ended with all it has
started."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # What others print (Spark, for one) must not come between the verdicts.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from tests.chaos.ground import Ground
    from tests.chaos.play import play
    from tests.chaos.schedule import schedule

    with Ground(Path(sys.argv[1])) as ground:
        for line in sys.stdin:
            source, seed = line.split()
            verdict = play(schedule(int(seed), source), ground)
            answers.write(json.dumps(verdict.to_json()) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
