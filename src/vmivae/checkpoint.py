"""Checkpoints of long computations: a killed one goes on from the last and ends with the same bytes.

The computations take a `Checkpoint`, which they ask for their state when they begin and offer it to as they
go. `checkpoints` makes one that keeps states in a folder; `NO_CHECKPOINT` keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from vmivae.console import say
from vmivae.errors import Interrupted
from vmivae.files import read_json, replace_directory
from vmivae.signals import interrupt

FORMAT = 1
KEPT = 2
"""Checkpoints of one computation that are kept: the last, and the one before should the last be damaged."""
STALE_SECONDS = 14 * 24 * 3600.0
"""Age at which checkpoints that nobody went on from are removed."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TENSOR = "tensor"

State = dict[str, Any]
"""Tensors, plain JSON values, and lists and dictionaries (with text as keys) of them."""


class Checkpoint(Protocol):
    """What a computation sees of its checkpoints. Each has a name that is its own within the stage."""

    def load(self, name: str, like: State) -> State | None:
        """The state to go on from, tensors on the CPU; None to begin at the beginning.

        Args:
            name: of the computation, which is under way from now on.
            like: its state at the beginning. One with other keys, or other shapes or types of tensors, is
                not taken; lists may have any length.
        """
        ...

    def offer(self, name: str, state: Callable[[], State]) -> None:
        """Called after every step: keep the state if it is time to.

        Raises:
            Interrupted: after keeping it, where SIGINT or SIGTERM has come.
        """
        ...

    def finish(self, name: str, state: Callable[[], State]) -> None:
        """The computation is done: its last state is kept with those of the computations after it.

        Raises:
            Interrupted: as in `offer`.
        """
        ...


class NoCheckpoint:
    """A `Checkpoint` that keeps nothing."""

    def load(self, name: str, like: State) -> State | None:
        """Nothing."""
        return None

    def offer(self, name: str, state: Callable[[], State]) -> None:
        """Not taken."""

    def finish(self, name: str, state: Callable[[], State]) -> None:
        """Not taken."""


NO_CHECKPOINT = NoCheckpoint()


def adam_state(optimizer: torch.optim.Adam) -> list[State]:
    """What Adam remembers of each parameter: `step`, `exp_avg`, `exp_avg_sq`; zeros before the first step."""
    return [
        optimizer.state.get(parameter)
        or {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]


def restore_adam(optimizer: torch.optim.Adam, states: list[State]) -> None:
    """Put back what `adam_state` gave. The fused step needs the moments laid out like their parameter."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, beginning, state in zip(parameters, adam_state(optimizer), states, strict=True):
        optimizer.state[parameter] = {key: beginning[key].copy_(value) for key, value in state.items()}


@contextmanager
def checkpoints(folder: Path, seconds: float) -> Iterator[Checkpoint]:
    """Keep checkpoints in `folder`, one at most every `seconds`; nobody else does at the same time.

    A second process waits until the first is done, and then goes on from where that one came to. SIGINT and
    SIGTERM make a computation that is under way keep its state after the running step and stop with
    `Interrupted`; a second signal stops at once. When the block ends without an exception the checkpoints are
    removed, unless somebody waits for them. Those of others are removed when they are stale.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder) as awaited:
        _clean(folder)
        kept = _Folder(folder, seconds)
        with kept.signals():
            try:
                yield kept
            except KeyboardInterrupt:
                kept.write_finished()
                raise
        if awaited():
            kept.write_finished()
        else:
            shutil.rmtree(folder, ignore_errors=True)


class _Folder:
    """Numbered checkpoints of all computations of one stage."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._states: dict[str, State] = {}
        self._number = 0
        self._due = time.monotonic() + seconds
        self._signal: int | None = None
        self._under_way = False
        self._unwritten = False
        self._warned = False
        self._read()

    def load(self, name: str, like: State) -> State | None:
        self._under_way = True
        while name in self._states and (reason := _difference(self._states[name], like, name)):
            self._set_aside(self._number, reason)
            self._read()
        return self._states.pop(name, None)

    def offer(self, name: str, state: Callable[[], State]) -> None:
        if self._signal is None and time.monotonic() < self._due:
            return
        self._write({**self._states, name: state()})
        self._stop()

    def finish(self, name: str, state: Callable[[], State]) -> None:
        self._states[name] = state()
        self._unwritten = True
        self._stop()
        self._under_way = False

    def write_finished(self) -> None:
        """Write the states of finished computations, where they are not in the last checkpoint."""
        if self._unwritten:
            self._write(self._states)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Let signals wait for the end of the running step."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What the parent has set to be ignored, as in the background of a shell, stays so.
        before = {number: signal.getsignal(number) for number in SIGNALS}
        heard = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
        for number in heard:
            signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self._under_way or self._signal is not None:
            self._under_way = False
            interrupt(number, frame)
        else:
            self._signal = number

    def _stop(self) -> None:
        if self._signal is not None:
            self._under_way = False
            raise Interrupted(self._signal)

    def _write(self, states: dict[str, State]) -> None:
        from safetensors.torch import save

        tensors: dict[str, Tensor] = {}
        content = _packed(states, "", tensors)
        weights = save(tensors)
        try:
            with replace_directory(self._folder / str(self._number + 1)) as made:
                (made / "state.safetensors").write_bytes(weights)
                text = json.dumps({"sha256": _digest(content, weights), "state": content})
                (made / "state.json").write_text(text, "utf-8")
        except OSError as error:
            if not self._warned:
                _warn(f"{self._folder}: no checkpoint written ({error.strerror or error}); the work goes on")
            self._warned = True
        else:
            self._number += 1
            self._unwritten = False
            for number in self._numbers()[:-KEPT]:
                shutil.rmtree(self._folder / str(number), ignore_errors=True)
        self._due = time.monotonic() + self._seconds

    def _read(self) -> None:
        """Take the newest checkpoint that can be read."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        self._states = {}
        for number in reversed(self._numbers()):
            self._number = max(number, self._number)
            try:
                content = read_json(self._folder / str(number) / "state.json")
                weights = (self._folder / str(number) / "state.safetensors").read_bytes()
                if content["sha256"] != _digest(content["state"], weights):
                    raise ValueError("its checksum is another")
                self._states = _unpacked(content["state"], load(weights))
                self._number = number
                return
            except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
                self._set_aside(number, " ".join(str(error).split()))

    def _set_aside(self, number: int, reason: str) -> None:
        damaged = self._folder / str(number)
        damaged.rename(damaged.with_name(f"damaged-{number}-{time.time_ns()}"))
        left = "the one before it is used" if self._numbers() else "there is none before it"
        _warn(f"{damaged}: damaged checkpoint ({reason}), set aside; {left}")

    def _numbers(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(entry.name) for entry in self._folder.iterdir() if entry.name.isdecimal())


@contextmanager
def _alone(folder: Path) -> Iterator[Callable[[], bool]]:
    """Hold the lock of `folder`; yields a function that says whether somebody waits for it."""
    from filelock import FileLock, Timeout

    lock, turn = FileLock(folder.with_suffix(".lock")), FileLock(folder.with_suffix(".waiting"))
    owner = folder / "pid"

    def awaited() -> bool:
        try:
            turn.acquire(timeout=0)
        except Timeout:
            return True
        turn.release()
        return False

    try:
        lock.acquire(timeout=0)
    except Timeout:
        with suppress(OSError):
            _warn(
                f"process {owner.read_text()} is at work on the same configuration; waiting for it to end, "
                "then going on from where it came to (SIGTERM ends it at once)"
            )
        with turn:
            lock.acquire()
    try:
        folder.mkdir(exist_ok=True)
        owner.write_text(str(os.getpid()))
        yield awaited
    finally:
        lock.release()


def _clean(folder: Path) -> None:
    """Remove what killed writes have left here, and what nobody has gone on from for long."""
    from filelock import FileLock, Timeout

    for unfinished in folder.glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for lock in folder.parent.glob("*.lock"):
        other = lock.with_suffix("")
        with suppress(Timeout, OSError):
            newest = max(path.stat().st_mtime for path in (lock, other) if path is lock or path.exists())
            if other == folder or time.time() - newest < STALE_SECONDS:
                continue
            with FileLock(lock, timeout=0):
                shutil.rmtree(other, ignore_errors=True)
                for left in (other.with_suffix(".waiting"), lock):
                    left.unlink(missing_ok=True)


def _packed(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON; its tensors are put under their path, and a reference takes their place."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: path}
    if isinstance(value, dict):
        return {key: _packed(entry, f"{path}/{key}", tensors) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(entry, f"{path}/{i}", tensors) for i, entry in enumerate(value)]
    return value


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {key: _unpacked(entry, tensors) for key, entry in value.items()}
    if isinstance(value, list):
        return [_unpacked(entry, tensors) for entry in value]
    return value


def _difference(state: Any, like: Any, path: str) -> str:
    """Where `state` cannot stand for `like`, or nothing."""
    if isinstance(like, Tensor):
        if not isinstance(state, Tensor):
            return f"{path} is no tensor"
        found, wanted = ((*value.shape, value.dtype) for value in (state, like))
        return "" if found == wanted else f"{path} is {found}, not {wanted}"
    if isinstance(like, dict):
        if not isinstance(state, dict) or state.keys() != like.keys():
            return f"{path} has other keys"
        entries = (_difference(state[key], like[key], f"{path}/{key}") for key in like)
        return next(filter(None, entries), "")
    if isinstance(like, list):
        if not isinstance(state, list):
            return f"{path} is no list"
        pairs = zip(state, like, strict=False)
        entries = (_difference(*pair, f"{path}/{i}") for i, pair in enumerate(pairs))
        return next(filter(None, entries), "")
    return "" if like is None or isinstance(state, type(like)) else f"{path} is {state!r}"


def _digest(content: Any, weights: bytes) -> str:
    return hashlib.sha256(json.dumps([FORMAT, content], sort_keys=True).encode() + weights).hexdigest()


def _warn(text: str) -> None:
    say(f"warning: {text}", sys.stderr)
