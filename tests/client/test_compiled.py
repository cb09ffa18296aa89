"""Compiled kernels on disk: good as long as the files that they were made from are the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import fedkge.client.compiled as source

OUTER = """
from pack.compiled import compiled
from pack.inner import two

@compiled
def outer(x: int) -> int:
    return two() * x
"""
INNER = """
from pack.compiled import inlined

@inlined
def two() -> int:
    return {value}
"""


def run(folder: Path) -> tuple[int, int]:
    """What the outer kernel returns in a new process, and how many copies it took from the disk."""
    code = "from pack.outer import outer; print(outer(10), sum(outer.stats.cache_hits.values()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    result, hits = done.stdout.split()
    return int(result), int(hits)


def test_a_kernel_is_compiled_again_when_another_file_changes(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").touch()
    (pack / "compiled.py").write_text(Path(source.__file__).read_text())
    (pack / "outer.py").write_text(textwrap.dedent(OUTER))
    (pack / "inner.py").write_text(INNER.format(value=2))
    assert run(tmp_path) == (20, 0)
    assert run(tmp_path) == (20, 1)
    (pack / "inner.py").write_text(INNER.format(value=3))
    assert run(tmp_path) == (30, 0)
