"""Computations that are killed at chosen steps and go on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from vmivae.checkpoint import Checkpoint, State, checkpoints

Result = TypeVar("Result")


class KilledError(Exception):
    """Stands for SIGKILL: nothing is kept on the way out."""


@dataclass
class KillAfter:
    """Hands on to `checkpoint`, and raises at the offer after `steps` others."""

    checkpoint: Checkpoint
    steps: int

    def load(self, name: str, like: State) -> State | None:
        return self.checkpoint.load(name, like)

    def offer(self, name: str, state: Callable[[], State]) -> None:
        if self.steps == 0:
            raise KilledError
        self.steps -= 1
        self.checkpoint.offer(name, state)

    def finish(self, name: str, state: Callable[[], State]) -> None:
        self.checkpoint.finish(name, state)


@pytest.fixture
def killed_and_resumed(tmp_path: Path) -> Callable[..., Result]:
    """A function that gives what a computation comes to when it is killed and goes on.

    It takes the computation, a function of a checkpoint, and after how many steps it is killed, each time
    anew. All steps before are kept.
    """

    def run(compute: Callable[[Checkpoint], Result], *kills: int) -> Result:
        for steps in kills:
            with pytest.raises(KilledError), checkpoints(tmp_path / "kept", 0.0) as checkpoint:
                compute(KillAfter(checkpoint, steps))
        with checkpoints(tmp_path / "kept", 0.0) as checkpoint:
            return compute(checkpoint)

    return run
