"""What is kept, when, what a damaged checkpoint costs, and what signals and a second process do."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint, State, adam_state, checkpoints, restore_adam
from vmivae.errors import Interrupted

SOURCE = Path(__file__).parents[1] / "src"


class Count:
    """Counts to `end`, and leaves at `leave` with an exception: a computation with a state."""

    def __init__(self, checkpoint: Checkpoint, end: int = 10, leave: int = 99, name: str = "count") -> None:
        self.value, self.weight = 0, torch.zeros(3)
        if saved := checkpoint.load(name, self.state()):
            self.value, self.weight = saved["value"], saved["weight"]
        self.began = self.value
        for value in range(self.value + 1, end + 1):
            self.value, self.weight = value, torch.full((3,), value / 7)
            checkpoint.offer(name, self.state)
            if value == leave:
                raise RuntimeError
        checkpoint.finish(name, self.state)

    def state(self) -> State:
        return {"value": self.value, "weight": self.weight, "list": [None, {"a": True}], "log": float("-inf")}


def run(folder: Path, compute: Callable[[Checkpoint], Any], seconds: float = 3600.0) -> None:
    with checkpoints(folder, seconds) as checkpoint:
        compute(checkpoint)


def counted(folder: Path, seconds: float = 0.0, **options: int) -> Count | None:
    """The counter when it is at its end; None where it left."""
    try:
        with checkpoints(folder, seconds) as checkpoint:
            return Count(checkpoint, **options)
    except RuntimeError:
        return None


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "count-12"


def test_a_state_comes_back_as_it_was(folder: Path) -> None:
    state = {
        "weights": {"a.b": torch.randn(2, 3), "none": torch.empty(0, 4)},
        "draws": torch.Generator().get_state(),
        "wide": torch.tensor(1 / 3, dtype=torch.float64),
        "transposed": torch.randn(2, 3).T,
        "shared": [torch.arange(6)] * 2,
        "rows": [{"step": 1, "loss": 0.1 + 0.2, "capacity": None}],
        "best": float("-inf"),
    }

    def leave(checkpoint: Checkpoint) -> None:
        assert checkpoint.load("x", state) is None
        checkpoint.offer("x", lambda: state)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(folder, leave, 0.0)
    with checkpoints(folder, 0.0) as checkpoint:
        found = checkpoint.load("x", state)
        assert found is not None
        assert found["rows"] == state["rows"]
        assert found["best"] == state["best"]
        pairs = [(found[key], state[key]) for key in ("draws", "wide", "transposed")]
        pairs += list(zip(found["shared"], state["shared"], strict=True))
        pairs += [(found["weights"][key], state["weights"][key]) for key in state["weights"]]
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def test_adam_goes_on_as_if_it_had_not_stopped() -> None:
    def stepped(weight: torch.nn.Parameter, optimizer: torch.optim.Adam, steps: range) -> None:
        for step in steps:
            gradient = torch.linspace(-1, 1, 24).view(2, 3, 2, 2) * step
            weight.grad = gradient.to(memory_format=torch.channels_last)
            optimizer.step()

    def made() -> tuple[torch.nn.Parameter, torch.optim.Adam]:
        # Channels last: the moments must have the same layout.
        weight = torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last)
        weight = torch.nn.Parameter(weight)
        return weight, torch.optim.Adam([weight], fused=True)

    first, adam = made()
    stepped(first, adam, range(1, 4))
    saved = [{key: value.clone().contiguous() for key, value in part.items()} for part in adam_state(adam)]
    second, resumed = made()
    with torch.no_grad():
        second.copy_(first)
    restore_adam(resumed, saved)
    stepped(first, adam, range(4, 7))
    stepped(second, resumed, range(4, 7))
    assert torch.equal(first, second)


def test_two_are_kept_and_none_when_all_is_done(folder: Path) -> None:
    counted(folder, leave=5)
    assert names(folder) == ["4", "5"]
    assert counted(folder).began == 5
    assert names(folder) == []
    assert counted(folder).began == 0


def test_nothing_is_written_before_it_is_time(folder: Path) -> None:
    counted(folder, seconds=3600.0, leave=5)
    assert names(folder) == []


def test_finished_computations_are_kept_with_the_one_under_way(folder: Path) -> None:
    def leave(checkpoint: Checkpoint) -> None:
        Count(checkpoint, name="first")
        Count(checkpoint, name="second", leave=2)

    with pytest.raises(RuntimeError):
        run(folder, leave, 0.0)
    with checkpoints(folder, 0.0) as checkpoint:
        assert Count(checkpoint, name="first").began == 10
        assert Count(checkpoint, name="second").began == 2


def cut(checkpoint: Path) -> None:
    weights = checkpoint / "state.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def flipped(checkpoint: Path) -> None:
    weights = checkpoint / "state.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def other_number(checkpoint: Path) -> None:
    text = (checkpoint / "state.json").read_text()
    assert '"value": 5' in text
    (checkpoint / "state.json").write_text(text.replace('"value": 5', '"value": 6'))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "bit": flipped,
    "empty": lambda checkpoint: (checkpoint / "state.safetensors").write_bytes(b""),
    "no JSON": lambda checkpoint: (checkpoint / "state.json").write_text("{"),
    "other JSON": lambda checkpoint: (checkpoint / "state.json").write_text("[1]"),
    "no text": lambda checkpoint: (checkpoint / "state.json").write_bytes(b"\xff"),
    "number": other_number,
    "file missing": lambda checkpoint: (checkpoint / "state.safetensors").unlink(),
    "all missing": lambda checkpoint: [file.unlink() for file in checkpoint.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_one_is_set_aside_and_the_one_before_used(
    folder: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    counted(folder, leave=5)
    damage(folder / "5")
    with checkpoints(folder, 0.0) as checkpoint:
        assert [name.split("-")[0] for name in names(folder)] == ["4", "damaged"]
        assert Count(checkpoint, leave=99).began == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {folder}/5: damaged checkpoint (")
    assert line.endswith("set aside; the one before it is used")


def test_where_all_are_damaged_the_work_begins_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted(folder, leave=5)
    for number in (4, 5):
        cut(folder / str(number))
    assert counted(folder, leave=2) is None
    assert capsys.readouterr().err.splitlines()[-1].endswith("there is none before it")
    assert counted(folder).began == 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weight": torch.zeros(4)}, "count/weight is (4, torch.float32), not (3, torch.float32)"),
        ({"weight": torch.zeros(3).double()}, "count/weight is (3, torch.float64), not (3, torch.float32)"),
        ({"weight": 0.5}, "count/weight is no tensor"),
        ({"value": "5"}, "count/value is '5'"),
        ({"list": 1}, "count/list is no list"),
        ({"more": 1}, "count has other keys"),
    ],
)
def test_a_state_that_does_not_fit_is_set_aside(
    folder: Path, changed: State, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counted(folder, leave=4)

    def leave(checkpoint: Checkpoint) -> None:
        checkpoint.offer("count", lambda: Count(NO_CHECKPOINT, end=4).state() | changed)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(folder, leave, 0.0)
    assert counted(folder).began == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}/5: damaged checkpoint ({reason}), set aside" in line


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_waits_for_the_running_step(folder: Path, number: signal.Signals, code: int) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    def compute(checkpoint: Checkpoint) -> None:
        checkpoint.load("count", Count(NO_CHECKPOINT).state())
        signal.raise_signal(number)
        checkpoint.offer("count", Count(NO_CHECKPOINT, end=3).state)

    with pytest.raises(Interrupted) as caught:
        run(folder, compute)
    assert caught.value.exit_code == code
    assert names(folder) == ["1"]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert counted(folder).began == 3


def test_a_signal_waits_for_a_running_import(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised there, it can leave the lock of all imports held, and the next import never ends."""
    (tmp_path / "interrupted_module.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGTERM)\nDONE = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    imported = []

    def compute(checkpoint: Checkpoint) -> None:
        import interrupted_module

        imported.append(interrupted_module.DONE)
        time.sleep(5)

    began = time.monotonic()
    with pytest.raises(Interrupted) as caught:
        run(folder, compute)
    assert imported == [True]
    assert caught.value.exit_code == 143
    assert time.monotonic() - began < 4


def test_a_second_signal_does_not_wait(folder: Path) -> None:
    reached = []

    def compute(checkpoint: Checkpoint) -> None:
        checkpoint.load("count", Count(NO_CHECKPOINT).state())
        signal.raise_signal(signal.SIGINT)
        reached.append("first")
        signal.raise_signal(signal.SIGINT)
        reached.append("second")

    with pytest.raises(Interrupted):
        run(folder, compute)
    assert reached == ["first"]
    assert names(folder) == []


def test_between_computations_a_signal_keeps_what_is_finished(folder: Path) -> None:
    def compute(checkpoint: Checkpoint) -> None:
        Count(checkpoint, end=10)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        run(folder, compute)
    assert names(folder) == ["1"]
    assert counted(folder).began == 10


def test_an_ignored_signal_stays_ignored(folder: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with checkpoints(folder, 3600.0) as checkpoint:
            checkpoint.load("count", Count(NO_CHECKPOINT).state())
            os.kill(os.getpid(), signal.SIGINT)
            checkpoint.offer("count", Count(NO_CHECKPOINT).state)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_full_disk_is_told_of_once_and_the_work_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    counted(folder, leave=2)
    monkeypatch.setattr("vmivae.checkpoint.replace_directory", full)
    counted(folder, leave=9)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"warning: {folder}: no checkpoint written (No space left on device); the work goes on"
    assert names(folder) == ["1", "2"]


def test_a_second_process_waits_and_goes_on_from_where_the_first_came_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = f"""
import sys, time
from pathlib import Path
from typing import Any
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_checkpoint import Count, checkpoints
with checkpoints(Path({str(folder)!r}), 3600.0) as checkpoint:
    print("mine", flush=True)
    time.sleep(2)
    Count(checkpoint, end=10)
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", first]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        second = counted(folder)
        assert process.wait() == 0
    assert second.began == 10
    assert names(folder) == []
    (line,) = capsys.readouterr().err.splitlines()
    assert f"process {process.pid} is at work on the same configuration" in line


def test_stale_checkpoints_and_what_killed_writes_left_are_removed(folder: Path) -> None:
    def old(path: Path) -> None:
        os.utime(path, (time.time() - 15 * 24 * 3600,) * 2)

    stale, fresh, used = (folder.with_name(name) for name in ("train-1", "train-2", "train-3"))
    for other in (stale, fresh, used):
        counted(other, leave=2)
    counted(folder, leave=2)
    (folder / ".3.abc").mkdir()
    with FileLock(used.with_suffix(".lock")):
        for other in (stale, used, folder):
            old(other)
            old(other.with_suffix(".lock"))
        assert counted(folder, leave=4) is None
    assert names(folder.parent) == ["count-12", "train-2", "train-3"]
    assert not stale.with_suffix(".lock").exists()
    assert names(folder) == ["3", "4"]
