"""How long work says how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int, str], None]
"""Called with what is being done, how far it is, how much there is, and the state in words."""
