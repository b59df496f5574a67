"""What varies between repeats of a stage (times, commit, versions, device): beside the results, not in them.

One file per configuration, .vmivae/runs/<key>.json at the main checkout's root; `make sync` reads it again.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vmivae.files import write_json

PACKAGES = ("vmivae", "torch", "numpy", "dvc", "mlflow")


def present_facts() -> dict[str, Any]:
    """Facts of a stage that starts now, in the current folder."""
    return {
        "started": time.time(),
        "commit": _git("rev-parse", "HEAD"),
        # Parameters are recorded by themselves, and every DVC experiment changes them.
        "dirty": bool(_git("status", "--porcelain", "--", "src", "stages", "dvc.yaml")),
        "experiment": os.environ.get("DVC_EXP_NAME", ""),
        "versions": _versions(),
        "platform": platform.platform(),
        "timings": {},
    }


def device_facts(wanted: str) -> dict[str, Any]:
    """The device that `train.device` stands for here, and PyTorch's threads, if this process uses PyTorch."""
    if "torch" not in sys.modules:
        return {}
    import torch

    from vmivae.model.device import choose_device

    device = choose_device(wanted)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": f"{device.type} ({name})", "threads": torch.get_num_threads()}


def read_facts(root: Path, key: str) -> dict[str, dict[str, Any]]:
    """Facts of every stage that has run under a configuration, by stage; empty if none has."""
    try:
        facts: dict[str, dict[str, Any]] = json.loads(_file(root, key).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return facts


def save_facts(root: Path, key: str, stage: str, facts: dict[str, Any]) -> None:
    """Keep the facts of one stage's last run beside those of the others."""
    write_json(_file(root, key), read_facts(root, key) | {stage: facts})


def _file(root: Path, key: str) -> Path:
    return root / ".vmivae" / "runs" / f"{key}.json"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        # Run from its source, vmivae itself need not be installed.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
