"""How much a file may claim to hold, so that a small malicious file cannot fill memory."""

MAX_NAME_CHARACTERS = 1000
"""Longest name of a class or factor."""

MAX_ARRAY_BYTES = 8 * 2**30
"""Largest array read from a file: 8 GiB; the largest common set of this kind, dSprites, has 3 GB."""
