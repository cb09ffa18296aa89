"""The wheel, as others install it: every file is inside, and it runs where there is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
DATA = {
    "fedkge/py.typed",
    "fedkge/simulations/experiments/quickstart.toml",
    "fedkge/datasets/mapping/shipped/eicu.ttl",
    "fedkge/datasets/mapping/shipped/mimic-iii-as-published.ttl",
    "fedkge/simulations/report/page.html",
    "fedkge/simulations/report/style.css",
    "fedkge/simulations/studies/dpkge/numbers.csv",
    "fedkge/simulations/studies/fedr/numbers.csv",
    "fedkge/simulations/studies/kg_mia/numbers.csv",
}


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="no build backend: pip install -e '.[dev]' brings it")
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", CHECKOUT, "--no-build-isolation", "--wheel-dir", folder)
    (found,) = folder.glob("fedkge-*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    files = {path for path in (CHECKOUT / "fedkge").rglob("*") if path.is_file()}
    wanted = {path.relative_to(CHECKOUT).as_posix() for path in files if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert wanted >= DATA
    assert packed == wanted


def lend_kernels(site: Path) -> None:
    """Machine code that this checkout has already: compiling it again would take longer than all the rest.

    Numba takes it for that of the installed file if the time of the source agrees, and compiles otherwise.
    """
    for source in (CHECKOUT / "fedkge").rglob("*.py"):
        shutil.copystat(source, site / source.relative_to(CHECKOUT))
    for kernel in (CHECKOUT / "fedkge").rglob("__pycache__/*.nb[ci]"):
        shutil.copy(kernel, site / kernel.relative_to(CHECKOUT))


def test_what_was_installed_runs_the_quickstart_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", wheel, "--target", site)
    lend_kernels(site)
    env = {**os.environ, "PYTHONPATH": str(site)}
    env.pop("FEDKGE_DATA", None)

    def run(*command: object) -> str:
        done = subprocess.run(
            list(map(str, command)), cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(sys.executable, "-c", "import fedkge; print(fedkge.__file__)").startswith(str(site))
    rounds = ("--set", "federation.rounds=1", "--set", "federation.evaluate_every=1")
    shown = run(site / "bin" / "fedkge", "run", "--engine", "inline", *rounds, "--out", "first")
    assert "test" in shown
    assert "FedR with ComplEx on UMLS" in (tmp_path / "first" / "report.html").read_text(encoding="utf-8")
