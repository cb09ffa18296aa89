"""Compiled functions on disk: good as long as the files that they were made from are the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedkge.compilation as source

OUTER = """
from pathlib import Path
from compilation import compile_kept
from pack.inner import {name}, two
from pack.numbers import FACTOR

def _outer(offset):
    def outer(pair):
        return two() * pair.x * FACTOR + offset
    return compile_kept(outer, Path(__file__).parent)

outer = [_outer(offset) for offset in (0, 1)]
values = [kernel({name}(10)) for kernel in outer]
hits = sum(sum(kernel.stats.cache_hits.values()) for kernel in outer)
"""
INNER = """
from pathlib import Path
from typing import NamedTuple
from compilation import compile_kept

class {name}(NamedTuple):
    x: int

def two():
    return {value}

two = compile_kept(two, Path(__file__).parent, forceinline=True)
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (tmp_path / "compilation.py").write_text(Path(source.__file__).read_text())
    write(folder)
    return folder


def write(pack: Path, value: int = 2, name: str = "Pair", factor: int = 1) -> None:
    (pack / "outer.py").write_text(OUTER.format(name=name))
    (pack / "inner.py").write_text(INNER.format(value=value, name=name))
    (pack / "numbers.py").write_text(f"FACTOR = {factor}\n")


def run(pack: Path, **environment: str) -> tuple[list[int], int]:
    """What the outer functions return in a new process, and how many copies it took from the disk."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", "from pack.outer import hits, values; print(*values, hits)"],
        cwd=pack.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    *values, hits = map(int, done.stdout.split())
    return values, hits


def test_a_copy_is_used_until_any_file_changes(pack: Path) -> None:
    assert run(pack) == ([20, 21], 0)
    assert run(pack) == ([20, 21], 2)
    write(pack, value=3)  # a function of another file
    assert run(pack) == ([30, 31], 0)
    write(pack, value=3, factor=5)  # a number of another file
    assert run(pack) == ([150, 151], 0)
    write(pack, value=3, factor=5, name="Renamed")  # a class that the copy refers to
    assert run(pack) == ([150, 151], 0)
    assert run(pack) == ([150, 151], 2)


def test_functions_that_differ_in_a_number_have_files_of_their_own(pack: Path) -> None:
    run(pack)
    indices = [path.name for path in pack.rglob("*.nbi") if "outer" in path.name]
    assert len(indices) == 2


def test_without_a_folder_to_write_to_it_compiles_in_every_process(pack: Path) -> None:
    nowhere = {"NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    assert run(pack, **nowhere) == ([20, 21], 0)
    assert run(pack, **nowhere) == ([20, 21], 0)
    assert not list(pack.rglob("*.nbi"))


def test_only_the_two_rooms_of_kernels_import_the_compiler():
    root = Path(source.__file__).parent
    importing = re.compile(r"^\s*(from|import) (numba|llvmlite|fedkge\.compilation)\b", re.MULTILINE)
    users = {path.relative_to(root) for path in root.rglob("*.py") if importing.search(path.read_text())}
    allowed = {Path("compilation.py"), Path("crypto/kernels.py")}
    assert {path for path in users - allowed if path.parent != Path("client/kernels")} == set()
