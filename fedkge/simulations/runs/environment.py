"""What a run was made with: versions, machine, commit; and when."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fedkge

__all__ = ["describe"]

_PACKAGES = ("cryptography", "flwr", "numba", "numpy", "opacus", "ray", "torch")


def describe() -> dict[str, Any]:
    """The content of environment.json."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "fedkge": fedkge.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _commit() -> str | None:
    """The commit of a checkout; an installed package has none, and without git nobody can tell."""
    folder = Path(fedkge.__file__).parent.parent
    if not (folder / ".git").exists() or not shutil.which("git"):
        return None
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
