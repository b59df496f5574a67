"""The process beside a running stage that has MLflow: told line by line, it keeps the stage's row.

`python -m vmivae.tracking.recorder STAGE EXPERIMENT NAME` reads commands from its standard input, each a JSON
list with the command's arguments, and answers each with a line: a JSON string that says what went wrong, or
is empty. After the first thing that went wrong it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress

from vmivae.tracking.configuration import Configuration
from vmivae.tracking.facts import read_facts
from vmivae.tracking.mirror import (
    FAILURE_TAG,
    Point,
    curve_prefix,
    finish_row,
    is_logged,
    live_steps,
    log_points,
    mirror,
    open_row,
)
from vmivae.tracking.store import Store, connect, main_root, one_line, open_store
from vmivae.tracking.tree import Tree

REASON_CHARACTERS = 500


class Recorder:
    """The row of a stage that runs in the current folder.

    Args:
        stage: its name in dvc.yaml.
        experiment: the MLflow experiment.
        name: of the DVC experiment, or empty.
    """

    def __init__(self, stage: str, experiment: str, name: str) -> None:
        self._stage = stage
        self._experiment = experiment
        self._name = name
        self._root = main_root()
        self._store: Store | None = None
        self._run_id = ""
        self._prefix = ""
        self._live = False
        self._there: dict[str, set[int]] = {}

    def connect(self) -> None:
        """Import MLflow and see whether the store answers, where there is no row yet."""
        connect(self._root)

    def open(self) -> None:
        """Show the row as running."""
        configuration = Configuration(Tree.folder())
        self._store = open_store(self._root, self._experiment)
        row = open_row(self._store, configuration, self._name)
        self._run_id = row.info.run_id
        self._store.client.update_run(self._run_id, status="RUNNING")
        self._prefix = curve_prefix(configuration, self._stage)
        # A repeat draws the same curves again: those that are there stay.
        self._live = not is_logged(row, self._stage)

    def log(self, points: list[Point]) -> None:
        """Draw points of the stage's curves."""
        if self._store is None or not self._live:
            return
        points = [(self._prefix + name, value, step) for name, value, step in points]
        # A resumed stage draws from its last checkpoint on, over points that are there.
        for name in {name for name, _, _ in points} - self._there.keys():
            self._there[name] = live_steps(self._store, self._run_id, name)
        log_points(
            self._store, self._run_id, [point for point in points if point[2] not in self._there[point[0]]]
        )

    def finish(self) -> None:
        """Mirror the files of the stage and of those before it, and show the row as finished."""
        configuration = Configuration(Tree.folder())
        store = self._store or open_store(self._root, self._experiment)
        stages = configuration.upstream(self._stage)
        run_id = mirror(store, configuration, stages, read_facts(self._root, configuration.key), self._name)
        finish_row(store, run_id)
        self._run_id = ""

    def fail(self, status: str, reason: str) -> None:
        """Show the row as failed, with the reason.

        Args:
            status: MLflow's, `FAILED` or `KILLED`.
            reason: cut to 500 characters.
        """
        if self._store is None or not self._run_id:
            return
        text = f"{self._stage}: {reason}"[:REASON_CHARACTERS]
        self._store.client.set_tag(self._run_id, FAILURE_TAG, text)
        self._store.client.set_terminated(self._run_id, status)
        self._run_id = ""

    def close(self) -> None:
        """The stage is gone: if it neither finished nor failed, it was ended from outside."""
        self.fail("KILLED", "ended without a word (killed, or out of memory)")


def main() -> None:
    """Do what the stage says until it ends."""
    # What stops the stage must not stop what it still has to say; without a stage there is no more input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Nothing that MLflow prints is an answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    recorder = Recorder(*sys.argv[1:])
    commands = {
        command.__name__: command
        for command in (recorder.connect, recorder.open, recorder.log, recorder.finish, recorder.fail)
    }
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        reason = ""
        try:
            commands[command](*arguments)
        except Exception as error:
            reason = one_line(error)
        with suppress(BrokenPipeError):
            os.write(answers, f"{json.dumps(reason)}\n".encode())
        if reason:
            return
    with suppress(Exception):
        recorder.close()


if __name__ == "__main__":
    main()
