"""DVC's queue of experiments: what has run, what waits, and how the rest is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from vmivae.comparison.grid import GridRun
from vmivae.errors import UserError
from vmivae.progress import Progress

LOOK_SECONDS = 5.0
WORKER_SECONDS = 30.0
"""How long a worker may take to show itself before it is taken for dead."""


class QueueError(UserError):
    """DVC could not do what was asked, or experiments failed."""

    exit_code = 3


def as_override(value: Any) -> str:
    """A value as `dvc exp run -S` reads it: like JSON, but the keys of mappings stand without quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_override(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_override(entry) for entry in value) + "]"
    return json.dumps(value, ensure_ascii=False)


class Queue:
    """The experiments of the checkout at `root`, by name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def run(self, runs: Collection[GridRun], jobs: int, progress: Progress) -> None:
        """Have every run finished: those that DVC has are left alone, the others go through the queue.

        What an earlier call had queued stays queued, and what was killed with its worker is queued anew.

        Args:
            runs: what is wanted.
            jobs: workers at a time.
            progress: called with how many are done.

        Raises:
            QueueError: an experiment failed, or DVC itself did.
        """
        names = [run.experiment for run in runs]
        before: set[str] | None = None
        while wanted := [name for name in names if name not in (finished := self.finished())]:
            if finished == before:
                raise QueueError("no worker of DVC’s queue came up; `dvc queue start -v` may say why")
            before = finished
            waiting, running, failed = self._states(wanted)
            if running and not self._worked_on():
                self._dvc("queue", "kill", *running)
                self._dvc("queue", "remove", *running)
                running = set()
            elif again := failed - waiting - running:
                self._dvc("queue", "remove", *again)
            for run in runs:
                if run.experiment in wanted and run.experiment not in waiting | running:
                    self._add(run)
            self._dvc("queue", "start", "--jobs", str(jobs))
            self._wait(wanted, len(names), progress)
            _, _, failed = self._states(wanted)
            if broken := sorted(failed - self.finished()):
                raise QueueError(
                    f"{len(broken)} of {len(names)} experiments failed, {broken[0]} first; "
                    f"`dvc queue logs {broken[0]}` says why, and the same command tries again"
                )
        progress("experiments", len(names), len(names), "")

    def finished(self) -> set[str]:
        """Experiments that DVC has the results of, whatever commit they began from."""
        from dvc.repo import Repo

        with Repo(str(self._root)) as repo:
            found = repo.experiments.ls(all_commits=True)
        return {name for pairs in found.values() for name, _ in pairs}

    def _states(self, names: Collection[str]) -> tuple[set[str], set[str], set[str]]:
        """Which of the experiments wait, run, and have failed."""
        from dvc.repo import Repo

        with Repo(str(self._root)) as repo:
            queue = repo.experiments.celery_queue
            failed = {done.entry.name for done in queue.iter_failed()}
            return *_at_work(queue, names), failed.intersection(names)

    def _worked_on(self) -> bool:
        """Whether a worker is alive."""
        from dvc.repo import Repo

        with Repo(str(self._root)) as repo:
            return bool(repo.experiments.celery_queue.worker_status())

    def _wait(self, names: list[str], total: int, progress: Progress) -> None:
        from dvc.repo import Repo

        seen = time.monotonic()
        with Repo(str(self._root)) as repo:
            queue = repo.experiments.celery_queue
            while True:
                waiting, running = _at_work(queue, names)
                left = len(waiting | running)
                progress("experiments", total - left, total, ", ".join(sorted(running)))
                if not left:
                    return
                if running or self._worked_on():
                    seen = time.monotonic()
                elif time.monotonic() - seen > WORKER_SECONDS:
                    return
                time.sleep(LOOK_SECONDS)

    def _add(self, run: GridRun) -> None:
        sets = [f"{key}={as_override(value)}" for key, value in run.overrides.items()]
        options = [word for entry in sets for word in ("-S", entry)]
        self._dvc("exp", "run", "--queue", "--name", run.experiment, *options)

    def _dvc(self, *words: str) -> None:
        # A file, since DVC's workers keep what they inherit: the end of a pipe would come with theirs.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [sys.executable, "-m", "dvc", *words],
                cwd=self._root,
                env=os.environ | {"DVC_NO_ANALYTICS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            said.seek(0)
            reason = said.read().strip().splitlines() or ["no reason given"]
        if done.returncode:
            raise QueueError(f"dvc {' '.join(words[:4])}: {reason[0]}")


def _at_work(queue: Any, names: Collection[str]) -> tuple[set[str], set[str]]:
    """Which of the experiments wait in a queue of DVC's, and which run."""
    # In this order: one that begins between the two looks is seen by the second.
    waiting = {entry.name for entry in queue.iter_queued()}
    running = {entry.name for entry in queue.iter_active()}
    return waiting.intersection(names), running.intersection(names)
