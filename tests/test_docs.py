"""The Python of README.md and docs/*.md runs as it stands, block after block of each file."""

import re
from pathlib import Path

import pytest
import torch

from vmivae.model import VAE, LatentSpec, save_vae

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = "<!-- not run"
"""A comment above a block that needs what only a reader has, and says what."""
BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(file: Path) -> list[tuple[int, str]]:
    """Line number and code of every block that is meant to run."""
    text = file.read_text("utf-8")
    return [
        (text.count("\n", 0, found.start("code")), found["code"])
        for found in BLOCK.finditer(text)
        if not found["before"].startswith(NOT_RUN)
    ]


# README's example has the defaults, which take a while.
PAGES = [
    pytest.param(file, id=file.name, marks=[pytest.mark.slow] * (file.name == "README.md"))
    for file in FILES
    if blocks(file)
]


@pytest.mark.parametrize("file", PAGES)
def test_the_code_of_a_page_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_vae(VAE((1, 8, 8), LatentSpec(2, (10,)), "mlp"), "models/vae")
    names: dict[str, object] = {"__name__": "page"}
    with torch.random.fork_rng([]):
        for line, code in blocks(file):
            # Empty lines above, so that an error names the page's own line.
            exec(compile("\n" * line + code, str(file), "exec"), names)


def test_blocks_are_found_with_their_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"text\n\n```python\na = 1\n```\n\n{NOT_RUN}: no -->\n```python\nb\n```\n```console\n$ c\n```\n"
    )
    assert blocks(page) == [(3, "a = 1\n")]
