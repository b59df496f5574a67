"""Where images come from, and the one format that all of them end in."""

from vmivae.data.binarize import binarized, fixed_generator
from vmivae.data.preparation import prepare
from vmivae.data.prepared import DataCard, Prepared, Split, SplitCard, load_prepared

__all__ = [
    "DataCard",
    "Prepared",
    "Split",
    "SplitCard",
    "binarized",
    "fixed_generator",
    "load_prepared",
    "prepare",
]
