"""The row of a running stage: live curves while it runs, its files afterwards, its failure otherwise."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from vmivae.console import say
from vmivae.tracking.configuration import Configuration, configuration_key
from vmivae.tracking.facts import device_facts, present_facts, read_facts, save_facts
from vmivae.tracking.mirror import (
    FAILURE_TAG,
    POSITIONS,
    Point,
    curve_prefix,
    finish_row,
    is_logged,
    live_steps,
    log_points,
    mirror,
    open_row,
)
from vmivae.tracking.store import Store, database, import_mlflow, main_root, open_store, shown, tracking_uri
from vmivae.tracking.tree import Tree

if TYPE_CHECKING:
    from vmivae.params import Params

FLUSH_SECONDS = 2.0
REASON_CHARACTERS = 500
SERVER_SECONDS = 60.0
"""How long a stage that has done its work waits for a store that is no local file to take it."""
FAILURE_SECONDS = 20.0
"""How long a stage that has failed waits for the store."""


class StageRun:
    """What a running stage can tell MLflow. Nothing here ever fails the stage, or holds it up at its work.

    Another thread talks to the store. After the first thing that the store did not take, one warning is
    printed and the store is left alone; the next stage, or `make sync`, fills in what is missing from the
    files.
    """

    def __init__(self, name: str, params: Params) -> None:
        self._name = name
        self._params = params
        self._root = main_root()
        self._store: Store | None = None
        self._run_id = ""
        self._prefix = ""
        self._points: list[Point] = []
        self._there: dict[str, set[int]] = {}
        self._flushed = time.monotonic()
        self._live = True
        self._failed = False
        self._aside = _Aside()
        self._facts = present_facts()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each named curve at a training step; values that are not finite are left out."""
        if not self._live:
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
        if self._name != "prepare":
            self._attempt(import_mlflow, tracking_uri(self._root))
            self._aside.do(self._attempt, self._open)

    def finish(self) -> None:
        """Keep the stage's facts and mirror its files and those that it was made from."""
        self._flush()
        self._facts["seconds"] = time.time() - self._facts["started"]
        self._attempt(self._save_facts, always=True)
        self._aside.do(self._attempt, self._mirror)
        self.wait(None if database(tracking_uri(self._root)) else SERVER_SECONDS)

    def fail(self, error: BaseException) -> None:
        """Show the row as failed, or as killed where the stage was interrupted, with the reason."""
        self._flush()
        self._aside.do(self._attempt, self._mark, error)
        self.wait(FAILURE_SECONDS)

    def _open(self) -> None:
        configuration = Configuration(Tree.folder())
        self._store = open_store(self._root, self._params.tracking.experiment)
        row = open_row(self._store, configuration, self._facts["experiment"])
        self._run_id = row.info.run_id
        self._store.client.update_run(self._run_id, status="RUNNING")
        self._prefix = curve_prefix(configuration, self._name)
        # A repeat draws the same curves again: those that are there stay.
        self._live = not is_logged(row, self._name)

    def _save_facts(self) -> None:
        self._facts |= device_facts(self._params.train.device)
        save_facts(self._root, configuration_key(), self._name, self._facts)

    def _mirror(self) -> None:
        configuration = Configuration(Tree.folder())
        store = self._store or open_store(self._root, self._params.tracking.experiment)
        stages = configuration.upstream(self._name)
        facts = read_facts(self._root, configuration.key)
        run_id = mirror(store, configuration, stages, facts, self._facts["experiment"])
        finish_row(store, run_id)

    def _mark(self, error: BaseException) -> None:
        if self._store is None or not self._run_id:
            return
        interrupted = isinstance(error, KeyboardInterrupt)
        reason = "interrupted" if interrupted else " ".join(str(error).split()) or type(error).__name__
        text = f"{self._name}: {reason}"[:REASON_CHARACTERS]
        self._store.client.set_tag(self._run_id, FAILURE_TAG, text)
        self._store.client.set_terminated(self._run_id, "KILLED" if interrupted else "FAILED")

    def _flush(self) -> None:
        points, self._points = self._points, []
        self._flushed = time.monotonic()
        if points:
            self._aside.do(self._attempt, self._log, points)

    def _log(self, points: list[Point]) -> None:
        if self._store is None or not self._live:
            return
        points = [(self._prefix + name, value, step) for name, value, step in points]
        # A resumed stage draws from its last checkpoint on, over points that are there.
        for name in {name for name, _, _ in points} - self._there.keys():
            self._there[name] = live_steps(self._store, self._run_id, name)
        log_points(
            self._store, self._run_id, [point for point in points if point[2] not in self._there[point[0]]]
        )

    def _attempt(self, action: Callable[..., None], *arguments: Any, always: bool = False) -> None:
        """Act; the first thing that goes wrong becomes a warning, and after it nothing is attempted."""
        if self._failed and not always:
            return
        try:
            action(*arguments)
        except Exception as error:
            self._give_up(one_line(error))

    def _give_up(self, reason: str) -> None:
        failed, self._failed, self._live = self._failed, True, False
        if not failed:
            say(
                f"warning: MLflow at {shown(tracking_uri(self._root))} did not take the results "
                f"({reason}); they are in the files, `make sync` mirrors them later",
                sys.stderr,
            )


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


def one_line(error: Exception) -> str:
    """What an error says, on one line of at most 200 characters, without passwords of addresses."""
    from requests.exceptions import ConnectionError, Timeout

    if isinstance(error.__context__, (ConnectionError, Timeout)):
        return "it does not answer"
    text = shown(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
