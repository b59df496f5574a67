"""How a signal stops the work."""

from __future__ import annotations

import os
import threading
from types import FrameType

from vmivae.errors import Interrupted

AGAIN_SECONDS = 0.05
"""After which a signal that met an import is sent again."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal by stopping the work, or have it sent again soon where that is importing a module.

    What is raised within Python's import system can leave its lock held for ever, so that the next import in
    another thread never ends, or can be lost in a callback.

    Raises:
        Interrupted: anywhere else.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()
            return
        frame = frame.f_back
    raise Interrupted(number)
