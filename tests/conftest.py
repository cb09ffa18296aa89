"""What all tests share: real data where it is at hand, and a seeded hypothesis profile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fedkge.datasets import KnowledgeGraph, Split, load, load_graph

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

settings.register_profile(
    "fedkge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fedkge")


@pytest.hookimpl(tryfirst=True)  # before the workers read the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With two workers, what needs Ray goes to one; files stay whole, the longest first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("ray" if _needs_ray(item) else str(item.path)))
    items.sort(key=lambda item: (not _needs_ray(item), "simulations" not in item.path.parts))


def _needs_ray(item: pytest.Item) -> bool:
    return "ray_running" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of published datasets."""
    folder = os.environ.get("FEDKGE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDKGE_DATA does not name a folder of published datasets")
    return Path(folder)


@pytest.fixture(scope="session")
def ddb14(data_folder: Path) -> KnowledgeGraph:
    return load_graph("DDB14")


@pytest.fixture(scope="session")
def published(data_folder: Path) -> dict[int, Split]:
    """The FedR authors' splits by number of clients."""
    splits = {clients: load(f"DDB14-Fed{clients}") for clients in (5, 10, 20)}
    return {clients: split for clients, split in splits.items() if isinstance(split, Split)}


@pytest.fixture(scope="session")
def umls() -> KnowledgeGraph:
    return load_graph("UMLS")
