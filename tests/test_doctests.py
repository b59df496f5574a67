"""The examples in docstrings do what they show."""

import doctest
import importlib
import pkgutil

import pytest

import vmivae

MODULES = [
    module.name
    for module in pkgutil.walk_packages(vmivae.__path__, "vmivae.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


def test_there_are_examples() -> None:
    assert doctest.testmod(importlib.import_module("vmivae.model.latents")).attempted > 0
