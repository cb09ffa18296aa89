"""What `fedkge run` takes when it is told nothing: the embedded experiment, and a folder of its own."""

from __future__ import annotations

from pathlib import Path

__all__ = ["QUICKSTART", "free_folder"]

QUICKSTART = Path(__file__).parent / "quickstart.toml"  # UMLS among five clients: no download


def free_folder(stem: str) -> Path:
    """The first of runs/STEM-1, runs/STEM-2, … that is not there yet."""
    number = 1
    while (folder := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return folder
