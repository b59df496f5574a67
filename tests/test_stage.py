import subprocess
import sys
from pathlib import Path

import pytest

from vmivae.stage import ProgressReporter

SOURCE = Path(__file__).parents[1] / "src"


def run(body: str) -> subprocess.CompletedProcess[str]:
    script = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
from vmivae import errors, stage
def main() -> None:
    {body}
if __name__ == "__main__":
    stage.run(main)
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("ParameterError", 2),
        ("DataError", 2),
        ("UserError", 2),
        ("NonFiniteError", 3),
        ("ImpossibleEstimateError", 3),
    ],
)
def test_a_users_error_is_one_line_and_a_code(error, code):
    result = run(f"raise errors.{error}('seed: must be ≥ 0, got -1 (params.yaml)')")
    assert result.returncode == code
    assert result.stderr == "error: seed: must be ≥ 0, got -1 (params.yaml)\n"
    assert result.stdout == ""


def test_the_file_of_a_parameter_is_named():
    assert run("raise errors.ParameterError('seed: got -1')").stderr == "error: seed: got -1 (params.yaml)\n"


def test_success_is_silent():
    result = run("pass")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_fault_of_ours_keeps_its_traceback():
    result = run("raise RuntimeError('ours')")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "RuntimeError: ours" in result.stderr


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_is_one_line_that_says_how_to_go_on_and_a_code(name, code):
    result = run(f"import signal; signal.raise_signal(signal.{name})")
    assert result.returncode == code
    assert result.stderr == "interrupted: `dvc repro` (or the same `dvc exp run`) goes on\n"


def test_away_from_a_terminal_progress_is_a_line_now_and_then_and_at_the_end(capsys):
    with ProgressReporter(seconds=1000.0) as progress:
        progress("training", 1, 3, "loss 2.0")
        progress("training", 2, 3, "loss 1.5")
        progress("training", 3, 3, "loss 1.0")
        progress("scoring", 5, 5, "")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == ["training: 3/3 loss 1.0", "scoring: 5/5"]
    assert "training: 2/3 loss 1.5" not in lines


def test_what_the_system_says_of_a_file_is_one_line():
    done = run('raise FileExistsError(17, "File exists", "plots")')
    assert (done.returncode, done.stderr) == (2, "error: plots: File exists\n")


def test_an_error_is_one_line_that_leaves_the_terminal_alone():
    done = run(r'raise errors.DataError("a\nb\x1b[31m\udcff: has no pictures")')
    assert (done.returncode, done.stderr) == (2, "error: a b\\x1b[31m\\udcff: has no pictures\n")


@pytest.mark.parametrize(
    "error",
    [
        'MemoryError("Unable to allocate 7 TiB")',
        """RuntimeError("DefaultCPUAllocator: can't allocate memory")""",
    ],
)
def test_a_lack_of_memory_is_one_line(error):
    done = run(f"raise {error}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: memory: not enough for these images and parameters (")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("streams", [">/dev/full", "| true", ">&-", "2>/dev/full", "2>&-", ">&- 2>&-"])
def test_where_nobody_reads_the_work_goes_on(tmp_path, streams):
    script = tmp_path / "stage.py"
    script.write_text(f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(SOURCE)!r})
from vmivae import stage
from vmivae.console import say
def main() -> None:
    with stage.ProgressReporter(seconds=0) as progress:
        time.sleep(0.1)
        for step in range(3):
            progress("training", step, 3, "loss 1.0")
            say("a card", sys.stdout)
    Path("done").touch()
if __name__ == "__main__":
    stage.run(main)
""")
    command = f"{sys.executable} {script} {streams} ; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "done").exists()) == (0, True)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_stages_keep_the_memory_they_free():
    result = run(
        """import numpy, resource
    for _ in range(50):
        numpy.ones(2**20)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    for _ in range(50):
        numpy.ones(2**20)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"""
    )
    before, after = map(int, result.stdout.split())
    # Given back and taken anew, each of the 8 MiB blocks would cost 2,048 faults.
    assert after - before < 2048
