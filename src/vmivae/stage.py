"""What every stage script shares: one line instead of a traceback, an exit code, progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vmivae.errors import UserError


def run(*commands: Callable[..., None]) -> None:
    """Run a function as a Typer command, or several as the subcommands of one.

    A `UserError` is printed as one line on stderr and exits with its code (2 for bad input). So is what the
    system says of a file or folder: a full disk, a file where a folder belongs. An interruption exits
    with 130.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    for command in commands:
        app.command()(command)
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {error.filename or 'files'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(UserError.exit_code)


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
            print(f"{what}: {done}/{total} {state}".rstrip(), file=sys.stderr, flush=True)
