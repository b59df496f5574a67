"""Lines for the person at the terminal, who may have closed it."""

from __future__ import annotations

import os
from typing import TextIO


def say(text: object, stream: TextIO | None) -> None:
    """Print one line to `stream`. Where nobody reads it any more, or it is full, nothing happens."""
    if stream is None:
        return
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # What is left in the buffer must go somewhere: Python flushes it once more at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def line(text: object) -> str:
    """A text on one line that leaves the terminal as it is: control characters are shown as escapes."""
    words = " ".join(str(text).split())
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in words
    )
