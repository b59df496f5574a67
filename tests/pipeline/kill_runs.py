"""Kill stages at random moments, let them go on, and compare the bytes with those of an undisturbed run.

    python tests/pipeline/kill_runs.py --kills 40

Most kills hit a stage's script, some `dvc repro --force`: the process group, as Ctrl-C does, or DVC alone, so
that a second one finds the stage at work. The seed is printed; moments also depend on the machine's speed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from repository import Repository, new_repository

# Stages that have long computations are killed more often than the others.
WEIGHTS = {"prepare": 1, "train": 6, "evaluate": 2, "estimate_mi": 6, "report": 1}
LOCKED = ("train", "estimate_mi")
SIGNALS = {signal.SIGKILL: 3, signal.SIGINT: 1, signal.SIGTERM: 1}
THROUGH_DVC = 0.15
AGAIN = 0.3
STUCK_SECONDS = 120
# Enough work that a kill can hit it, and checkpoints often enough that there is one to go on from.
LONGER = {
    "train": {"epochs": 60, "checkpoint_seconds": 0.2},
    "evaluation": {"importance_samples": 64},
    "mutual_information": {
        "q_network": {"steps": 400},
        "samples": 20_000,
        "importance": {"images": 256, "samples": 64},
    },
}


@dataclass
class Kills:
    """Kills in a repository whose stages have run undisturbed.

    Attributes:
        seconds: that each stage's script took, from its start.
    """

    repository: Repository
    random: random.Random
    seconds: dict[str, float]
    undisturbed: dict[str, bytes]

    @classmethod
    def prepared(cls, root: Path, home: Path, seed: int) -> Kills:
        """A new repository after an undisturbed run."""
        repository = new_repository(root, home)
        repository.set_params(LONGER)
        seconds = {}
        for stage in WEIGHTS:
            began = time.monotonic()
            repository.run("python", f"stages/{stage}.py", PYTHONPATH="src")
            seconds[stage] = time.monotonic() - began
        return cls(repository, random.Random(seed), seconds, repository.results())

    def one(self) -> str:
        """Kill a stage, once or more often, and let it go on; says what was done.

        Raises:
            AssertionError: a file is not that of the undisturbed run, or a killed stage did not say so.
        """
        (stage,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        done = self._through_dvc(stage) if self.random.random() < THROUGH_DVC else self._script(stage)
        results = self.repository.results()
        wrong = [name for name in self.undisturbed if results.get(name) != self.undisturbed[name]]
        assert not wrong, f"{done}: not the undisturbed run's bytes: {', '.join(wrong)}"
        left = [path.name for path in self._checkpoints() if path.is_dir()]
        assert not left, f"{done}: checkpoints are left: {', '.join(left)}"
        return done

    def _script(self, stage: str) -> str:
        self._remove_outputs(stage)
        told = []
        while not told or self.random.random() < AGAIN:
            (number,) = self.random.choices(list(SIGNALS), list(SIGNALS.values()))
            after = self.random.uniform(0, self.seconds[stage])
            code = self._killed(["python", f"stages/{stage}.py"], number, after, group=False)
            told.append(f"{signal.Signals(number).name} after {after:.1f} s ({self._state(code)})")
        self.repository.run("python", f"stages/{stage}.py", PYTHONPATH="src")
        return f"{stage}: {', '.join(told)}"

    def _through_dvc(self, stage: str) -> str:
        command = ["dvc", "repro", "--force", "--single-item", stage]
        number = self.random.choice([signal.SIGINT, signal.SIGKILL])
        # Only stages with checkpoints are locked, so that a second one waits for the first.
        alone = number == signal.SIGKILL and stage in LOCKED and self.random.random() < 0.5
        # DVC itself takes seconds to start.
        after = self.random.uniform(0, self.seconds[stage] + 3)
        code = self._killed(command, number, after, group=not alone)
        self.repository.run(*command)
        whom = "dvc repro alone" if alone else "dvc repro and its stage"
        return f"{stage}: {signal.Signals(number).name} to {whom} after {after:.1f} s ({self._state(code)})"

    def _killed(self, command: list[str], number: int, after: float, group: bool) -> int:
        """Run a command, send a signal after some seconds, and return its exit status."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.repository.root,
                env=self.repository.environment | {"PYTHONPATH": "src"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number) if group else process.send_signal(number)
            try:
                code = process.wait(STUCK_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"{command}: does not end after signal {number}") from None
            output.seek(0)
            text = output.read().decode()
        if code in (130, 143) and "interrupted" not in text:
            raise AssertionError(f"{command}: does not say that it was interrupted\n{text}")
        return code

    def _state(self, code: int) -> str:
        if code == 0:
            return "it was done"
        kept = any(path.name.isdecimal() for folder in self._checkpoints() for path in folder.glob("*"))
        return f"exit {code}, {'with' if kept else 'without'} a checkpoint"

    def _checkpoints(self) -> list[Path]:
        return sorted((self.repository.root / ".vmivae/checkpoints").glob("*"))

    def _remove_outputs(self, stage: str) -> None:
        """As DVC does before it runs a stage."""
        definition = yaml.safe_load((self.repository.root / "dvc.yaml").read_text())["stages"][stage]
        for entry in (*definition["outs"], *definition.get("metrics", [])):
            path = self.repository.root / (entry if isinstance(entry, str) else next(iter(entry)))
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        (home := Path(folder) / "home").mkdir()
        kills = Kills.prepared(Path(folder) / "vmivae", home, arguments.seed)
        print("undisturbed:", {stage: round(s, 1) for stage, s in kills.seconds.items()}, flush=True)
        failed = 0
        for number in range(1, arguments.kills + 1):
            try:
                print(f"{number:3d}  {kills.one()}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{number:3d}  FAILED {error}", flush=True)
    print(f"{arguments.kills - failed} of {arguments.kills} ended with the undisturbed run's bytes")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
