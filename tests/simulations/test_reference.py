"""The reference of the experiment file says what the schema says."""

from __future__ import annotations

from fedkge.experiment import ClientSettings, Experiment
from fedkge.simulations.experiments.completion import settings
from fedkge.simulations.experiments.reference import reference
from tests.documents import ROOT


def test_the_committed_reference_is_fresh() -> None:
    written = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
    assert written == reference(), (
        "run: python -m fedkge.simulations.experiments.reference docs/experiment.md"
    )


def test_every_option_says_what_it_means() -> None:
    options = {**dict(settings(Experiment)), **dict(settings(ClientSettings, "clients."))}
    del options["clients"]  # a list of sections
    assert [name for name, field in options.items() if not field.description] == []


def test_values_are_what_the_schema_accepts() -> None:
    page = reference()
    assert "| `fraction` | number, above 0, at most 1 | `1.0` |" in page
    assert '| `sides` | `"tail"`, `"head"`, `"both"` | `"tail"` |' in page
    assert "| `client` | whole number, at least 0 | required |" in page
    assert "| `ray_address` | text |  |" in page
