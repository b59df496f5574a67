"""The row of a running stage: live curves while it runs, its files afterwards, its failure otherwise."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from vmivae.console import say
from vmivae.tracking.configuration import configuration_key
from vmivae.tracking.facts import device_facts, present_facts, save_facts
from vmivae.tracking.mirror import POSITIONS, Point
from vmivae.tracking.store import StoreError, database, main_root, one_line, shown, tracking_uri

if TYPE_CHECKING:
    from vmivae.params import Params

FLUSH_SECONDS = 2.0
SERVER_SECONDS = 60.0
"""How long a stage that has done its work waits for a store that is no local file to take it."""
FAILURE_SECONDS = 20.0
"""How long a stage that has failed waits for the store."""


class StageRun:
    """What a running stage can tell MLflow. Nothing here ever fails the stage, or holds it up at its work.

    Another process (`vmivae.tracking.recorder`) has MLflow, which takes seconds to import, and talks to the
    store. After the first thing that the store did not take, one warning is printed and the store is left
    alone; the next stage, or `make sync`, fills in what is missing from the files.
    """

    def __init__(self, name: str, params: Params) -> None:
        self._name = name
        self._params = params
        self._root = main_root()
        self._points: list[Point] = []
        self._flushed = time.monotonic()
        self._failed = False
        self._facts = present_facts()
        self._recorder = RecorderProcess(name, params.tracking.experiment, self._facts["experiment"])
        self._aside = _Aside()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each named curve at a training step; values that are not finite are left out."""
        if self._failed:
            return
        self._points += [
            (name, float(value), step)
            for name, value in values.items()
            if name not in POSITIONS and math.isfinite(value)
        ]
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the store has taken what it was told so far, for `seconds` at most."""
        if not self._aside.wait(seconds):
            self._give_up(f"no answer within {seconds:.0f} s")

    def timing(self, name: str, seconds: float) -> None:
        """Record a duration or a throughput, which no file of the stage may hold."""
        self._facts["timings"][name] = float(seconds)

    def start(self) -> None:
        """Show the configuration's row as running. Before the data are prepared there is none."""
        self._attempt(self._recorder.start)
        self._tell("connect" if self._name == "prepare" else "open")

    def finish(self) -> None:
        """Keep the stage's facts and mirror its files and those that it was made from."""
        self._flush()
        self._facts["seconds"] = time.time() - self._facts["started"]
        self._attempt(self._save_facts, always=True)
        self._tell("finish")
        self.wait(None if database(tracking_uri(self._root)) else SERVER_SECONDS)
        self._recorder.end()

    def fail(self, error: BaseException) -> None:
        """Show the row, if there is one, as failed or as killed by an interrupt, with the reason."""
        if self._name == "prepare":
            self._failed = True
            self._recorder.end()
            return
        self._flush()
        if isinstance(error, KeyboardInterrupt):
            self._tell("fail", "KILLED", "interrupted")
        else:
            self._tell("fail", "FAILED", " ".join(str(error).split()) or type(error).__name__)
        self.wait(FAILURE_SECONDS)
        self._recorder.end()

    def _save_facts(self) -> None:
        self._facts |= device_facts(self._params.train.device)
        save_facts(self._root, configuration_key(), self._name, self._facts)

    def _flush(self) -> None:
        points, self._points = self._points, []
        self._flushed = time.monotonic()
        if points:
            self._tell("log", points)

    def _tell(self, command: str, *arguments: Any) -> None:
        self._aside.do(self._attempt, self._recorder.ask, command, *arguments)

    def _attempt(self, action: Callable[..., None], *arguments: Any, always: bool = False) -> None:
        """Act; the first thing that goes wrong becomes a warning, and after it nothing is attempted."""
        if self._failed and not always:
            return
        try:
            action(*arguments)
        except Exception as error:
            self._give_up(one_line(error))

    def _give_up(self, reason: str) -> None:
        failed, self._failed = self._failed, True
        if not failed:
            say(
                f"warning: MLflow at {shown(tracking_uri(self._root))} did not take the results "
                f"({reason}); they are in the files, `make sync` mirrors them later",
                sys.stderr,
            )


class RecorderProcess:
    """The process that has MLflow: see `vmivae.tracking.recorder`."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vmivae.tracking.recorder", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": path},
            # Ctrl-C at the terminal is for the stage, which then says what becomes of the row.
            start_new_session=True,
        )

    def ask(self, command: str, *arguments: Any) -> None:
        """Have a command done.

        Raises:
            StoreError: it was not.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(json.dumps([command, *arguments]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        reason = json.loads(answer) if answer else "the process that has MLflow ended"
        if reason:
            raise StoreError(reason)

    def end(self) -> None:
        """End the process: what it was asked is done, or nobody waits for it any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class _Aside:
    """Things done one after the other beside the work, by a thread that ends with it."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def do(self, action: Callable[..., object], *arguments: Any) -> None:
        """Have something done after all before it."""
        if not self._thread.is_alive():
            self._thread.start()
        self._waiting.put((action, arguments))

    def wait(self, seconds: float | None) -> bool:
        """Whether everything so far is done within `seconds`."""
        done = threading.Event()
        self.do(done.set)
        return done.wait(seconds)

    def _run(self) -> None:
        while True:
            action, arguments = self._waiting.get()
            action(*arguments)


@contextmanager
def stage(name: str, params: Params) -> Iterator[StageRun]:
    """Run a stage of dvc.yaml in the current folder under its row in MLflow.

    On success the row takes the files that the stage wrote and those they were made from; on an exception it
    shows the failure, and the exception goes on. A store that is down or slow costs a warning, and no more
    than a minute when the work is done.

    Args:
        name: of the stage in dvc.yaml.
        params: `tracking.experiment` names the MLflow experiment.
    """
    run = StageRun(name, params)
    run.start()
    try:
        yield run
    except BaseException as error:
        run.fail(error)
        raise
    run.finish()
