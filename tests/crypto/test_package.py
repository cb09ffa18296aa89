"""The package keeps to itself: a true list of names, no heavy imports, no pickles."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import fedkge.crypto

MODULES = [name for _, name, _ in pkgutil.walk_packages(fedkge.crypto.__path__, "fedkge.crypto.")]


def test_every_module_s_list_of_names_is_true_and_sorted() -> None:
    for name in ["fedkge.crypto", *MODULES]:
        module = importlib.import_module(name)
        for public in module.__all__:
            assert hasattr(module, public), f"{name} lists {public}"


def test_neither_torch_nor_flower_nor_pandas_is_imported() -> None:
    script = (
        "import sys, fedkge.crypto\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'flwr', 'pandas', 'ray'}))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_no_module_can_read_a_pickle_or_the_global_random_state() -> None:
    for path in Path(fedkge.crypto.__path__[0]).rglob("*.py"):
        source = path.read_text()
        for word in ("pickle", "np.random", "import random", "eval("):
            assert word not in source, f"{path.name} mentions {word}"


def test_only_one_module_asks_the_operating_system_for_randomness() -> None:
    users = [p.name for p in Path(fedkge.crypto.__path__[0]).rglob("*.py") if "os.urandom" in p.read_text()]
    assert users == ["entropy.py"]
