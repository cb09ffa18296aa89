"""The reference of the experiment file says what the schema says."""

from __future__ import annotations

import re

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


def test_attacks_at_the_end_of_a_run_are_those_that_work_on_a_record() -> None:
    (line,) = [line for line in reference().splitlines() if line.startswith("| `attacks` |")]
    assert "`membership`" in line
    assert not re.search("active|tampering", line)


def test_values_are_what_the_schema_accepts() -> None:
    page = reference()
    assert "| `fraction` | number, above 0, at most 1 | `1.0` |" in page
    assert '| `sides` | `"tail"`, `"head"`, `"both"` | `"tail"` |' in page
    assert "| `client` | whole number, at least 0 | required |" in page
    assert "| `ray_address` | text |  |" in page
