"""Computations that are killed at chosen steps and go on; stages that record in the test's process."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmivae.checkpoint import Checkpoint, State, checkpoints
from vmivae.tracking import run
from vmivae.tracking.recorder import Recorder


class KilledError(Exception):
    """Stands for SIGKILL: nothing is kept on the way out."""


class Watched:
    """Notes what is offered to `checkpoint`, and raises at the offer after `steps` others."""

    def __init__(self, checkpoint: Checkpoint, steps: int | None = None) -> None:
        self._steps = steps
        self.load, self.finish = checkpoint.load, checkpoint.finish
        self._offer = checkpoint.offer
        self.offered: list[tuple[str, State]] = []

    def offer(self, name: str, state: Callable[[], State]) -> None:
        self.offered.append((name, state()))
        if len(self.offered) - 1 == self._steps:
            raise KilledError
        self._offer(name, state)


class Killing:
    """Runs computations, each a function of a checkpoint.

    Attributes:
        offered: names and states that each process has offered, the last one's after its last kill.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.offered: list[list[tuple[str, State]]] = []

    def __call__(self, compute: Callable[[Checkpoint], Any], *kills: int) -> Any:
        """What a computation comes to that is killed after so many steps, which are kept, and goes on."""
        for steps in kills:
            with pytest.raises(KilledError), checkpoints(self._folder, 0.0) as checkpoint:
                compute(self._watched(checkpoint, steps))
        with checkpoints(self._folder, 0.0) as checkpoint:
            return compute(self._watched(checkpoint))

    def _watched(self, checkpoint: Checkpoint, steps: int | None = None) -> Watched:
        watched = Watched(checkpoint, steps)
        self.offered.append(watched.offered)
        return watched


class RecorderHere:
    """A stage's recorder within the test's process, which has imported MLflow."""

    def __init__(self, *arguments: str) -> None:
        self.recorder = Recorder(*arguments)

    def start(self) -> None:
        """There is no process to start."""

    def ask(self, command: str, *arguments: object) -> None:
        """Have a command done, after what its arguments go through on their way to a process."""
        getattr(self.recorder, command)(*json.loads(json.dumps(arguments)))

    def end(self) -> None:
        """There is no process to end."""


def pytest_configure() -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and the tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the pipeline's minutes first, so that no process is left with them when the others have ended."""
    items.sort(key=lambda item: "pipeline" not in item.path.parts)


@pytest.fixture
def killing(tmp_path: Path) -> Killing:
    return Killing(tmp_path / "kept")


@pytest.fixture
def recorder_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages record in this process: a process each, as they have it, takes seconds to import MLflow."""
    monkeypatch.setattr(run, "RecorderProcess", RecorderHere)
