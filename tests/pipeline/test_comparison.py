"""A comparison through DVC's queue: interrupted half-way, resumed, and nothing run twice."""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml

pytestmark = pytest.mark.slow

# Only the last stages differ: the others come from DVC's cache.
GRID = {
    "title": "A small grid",
    "seeds": [0],
    "methods": {f"pairs-{count}": {"mutual_information.samples": count} for count in (210, 220, 230)},
}
COMPARE = ("python", "-m", "vmivae.comparison", "small.yaml")


def experiments(repository) -> set[str]:
    names = repository.run("dvc", "exp", "list", "--all-commits", "--name-only").split()
    return {name for name in names if name.startswith("small-")}


def kill_all(repository, first: subprocess.Popen) -> None:
    """As if the machine went down: the command, DVC's worker, and the experiment it is at."""
    pids = [first.pid]
    # DVC removes folders there at any time.
    walk = os.walk(repository.root / ".dvc/tmp/exps")
    for path in [Path(folder, name) for folder, _, names in walk for name in names if name.endswith(".json")]:
        with contextlib.suppress(ValueError, OSError):
            content = json.loads(path.read_text())
            if content.get("pid") and content.get("returncode") is None:
                pids.append(content["pid"])
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for one in (*process.children(recursive=True), process):
                one.kill()
    first.wait()


def test_interrupted_and_resumed(reproduced) -> None:
    (reproduced.root / "small.yaml").write_text(yaml.safe_dump(GRID))
    environment = reproduced.environment | {"PYTHONPATH": "src"}
    told = reproduced.root / "told.txt"
    with told.open("w") as output:
        first = subprocess.Popen(COMPARE, cwd=reproduced.root, env=environment, stderr=output)
    deadline = time.monotonic() + 240
    while not experiments(reproduced) and time.monotonic() < deadline:
        time.sleep(1)
    # While the workers are at it, not when they have ended.
    assert "experiments: 0/3 small-pairs-210-" in told.read_text()
    kill_all(reproduced, first)
    before = experiments(reproduced)
    assert 1 <= len(before) < 3
    times = {name: row.info.start_time for name, row in reproduced.rows().items()}

    assert "3 runs compared" in reproduced.run(*COMPARE, PYTHONPATH="src")
    after, rows = experiments(reproduced), reproduced.rows()
    assert before < after
    assert len(after) == 3
    assert all(rows[name].info.start_time == times[name] for name in before)
    table = (reproduced.root / "small.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in table[1:]] == [
        [f"pairs-{count}", "plain", "1"] for count in (210, 220, 230)
    ]
    assert (reproduced.root / "small.html").read_text().count("<img") == 2

    assert "3 runs compared" in reproduced.run(*COMPARE, PYTHONPATH="src")
    assert experiments(reproduced) == after
    assert {name: row.info.end_time for name, row in reproduced.rows().items()} == {
        name: row.info.end_time for name, row in rows.items()
    }
