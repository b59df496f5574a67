"""What every stage script shares: one line instead of a traceback, an exit code, progress, checkpoints."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vmivae.console import line, say
from vmivae.errors import Interrupted, ParameterError, UserError
from vmivae.signals import interrupt

if TYPE_CHECKING:
    from vmivae.checkpoint import Checkpoint

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

GO_ON = "`dvc repro` (or the same `dvc exp run`) goes on"


def run(*commands: Callable[..., None], again: str = GO_ON, keys_of: str = "params.yaml") -> None:
    """Run a function as a Typer command, or several as the subcommands of one.

    A `UserError` is printed as one line on stderr and exits with its code (2 for bad input). So is what the
    system says of a file or folder (a full disk, a file where a folder belongs) and of memory. SIGINT and
    SIGTERM end it with 130 and 143 and a line that says how to go on: `again`. A `ParameterError` that does
    not name its file gets `keys_of` appended; nothing if that is empty.

    Compiled code is kept in .vmivae/compiled at the main checkout's root, so later runs start with it.
    """
    from vmivae.tracking.store import main_root

    # A crash within compiled code says where.
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable()
    keep_freed_memory()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(main_root() / ".vmivae" / "compiled"))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    for command in commands:
        app.command()(_interruptible(command, again))
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        app()
    except UserError as error:
        # The package knows keys, but not the file that a stage has them from.
        known = not isinstance(error, ParameterError) or keys_of in str(error)
        _fail(error if known else f"{error} ({keys_of})", error.exit_code)
    except OSError as error:
        _fail(f"{error.filename or 'files'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _fail(f"memory: not enough for these images and parameters ({error})")


def keep_freed_memory() -> None:
    """Have the process keep up to 1 GiB of the memory that it frees, where the C library is glibc.

    A training step allocates and frees the same few megabytes per layer. By default glibc gives such blocks
    back to the system and takes them anew, zeroed page by page: a fifth of the time of a step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**30)
        mallopt(_TOP_PAD, 2**26)
        # Older versions accept no more than 32 MiB.
        mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)


def _fail(reason: object, code: int = UserError.exit_code) -> None:
    say(f"error: {line(reason)}", sys.stderr)
    sys.exit(code)


def _is_out_of_memory(error: Exception) -> bool:
    # PyTorch has a type of its own for a full accelerator, and for a full host only these words.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


def _interruptible(command: Callable[..., None], again: str) -> Callable[..., None]:
    @functools.wraps(command)
    def run_it(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as error:
            say(f"interrupted: {again}", sys.stderr)
            sys.exit(error.exit_code if isinstance(error, Interrupted) else 130)

    return run_it


@contextmanager
def checkpoints(name: str, seconds: float) -> Iterator[Checkpoint]:
    """Checkpoints of a stage of dvc.yaml, below .vmivae/checkpoints at the main checkout's root.

    They belong to the stage's parameters, inputs and code, and to the device and PyTorch at hand, and are
    locked: see `vmivae.checkpoint.checkpoints`.

    Args:
        name: of the stage.
        seconds: `train.checkpoint_seconds`.
    """
    import torch

    from vmivae import checkpoint
    from vmivae.model.device import choose_device
    from vmivae.tracking.configuration import Configuration
    from vmivae.tracking.store import main_root
    from vmivae.tracking.tree import Tree

    key = None
    # Where an input is missing or damaged, the stage itself says so better.
    with suppress(Exception):
        key = Configuration(Tree.folder()).stage_key(name)
    if key is None:
        yield checkpoint.NO_CHECKPOINT
        return
    key = hashlib.sha256(f"{key} {torch.__version__} {choose_device()}".encode()).hexdigest()
    folder = main_root() / ".vmivae" / "checkpoints" / f"{name}-{key[:16]}"
    with checkpoint.checkpoints(folder, seconds) as kept:
        yield kept


class ProgressReporter:
    """Progress of long work: a bar on a terminal, a line every `seconds` elsewhere.

    Call it with what is being done, how far it is, how much there is, and a few words on the state:

        with ProgressReporter() as progress:
            progress("training", step, steps, "loss 93.1")
    """

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._last = 0.0
        self._bar: Progress | None = None
        if Console(stderr=True).is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[state]}"),
                console=Console(stderr=True),
            )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressReporter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int, state: str = "") -> None:
        if self._bar:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=total, state=state)
            self._bar.update(self._tasks[what], completed=done, total=total, state=state)
            return
        now = time.monotonic()
        if done >= total or now - self._last >= self._seconds:
            self._last = now
            say(f"{what}: {done}/{total} {state}".rstrip(), sys.stderr)
