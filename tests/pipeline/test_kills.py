"""Stages that are killed at random moments end with the bytes of an undisturbed run."""

import random

import pytest
from kill_runs import Kills

KILLS = 5

pytestmark = pytest.mark.slow


def test_killed_stages_end_with_the_same_bytes(tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    (home := tmp_path / "home").mkdir()
    kills = Kills.prepared(tmp_path / "vmivae", home, seed)
    for _ in range(KILLS):
        print(kills.one())
