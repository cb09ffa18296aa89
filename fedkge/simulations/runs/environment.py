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
        "commit": _git("rev-parse", "HEAD") or None,
        "dirty": _is_dirty(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _is_dirty() -> bool | None:
    """Whether the code differs from the commit; what else lies in the checkout does not matter."""
    status = _git("status", "--porcelain", "--", "fedkge")
    return None if status is None else bool(status)


def _git(*words: str) -> str | None:
    """What git says of a checkout; an installed package has none, and without git nobody can tell."""
    folder = Path(fedkge.__file__).parent.parent
    if not (folder / ".git").exists() or not shutil.which("git"):
        return None
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
