"""Every mode that a run can have is said in words."""

from __future__ import annotations

from typing import get_args

import pytest

from fedkge.client.privacy import MECHANISMS
from fedkge.experiment import Experiment, PrivacySettings
from fedkge.simulations.report.words import asked
from fedkge.simulations.runs.metadata import Metadata

UNIONS = get_args(PrivacySettings.model_fields["union"].annotation)


def protection(*changes: str) -> str:
    """The last sentence, which is about protection."""
    return asked(Metadata(Experiment().override(changes).model_dump()))[-1]


def test_every_union_mode_has_words_of_its_own() -> None:
    sentences = [protection(f"privacy.union={mode}") for mode in UNIONS]
    assert {"plain", "hashed", "private", "oprf"} == set(UNIONS)
    assert all("; " in sentence and "rows" in sentence for sentence in sentences)
    assert len(set(sentences)) == len(UNIONS)


@pytest.mark.parametrize("mode", list(MECHANISMS))
def test_every_dp_mode_has_words_and_says_what_its_epsilon_is_worth(mode: str) -> None:
    sentence = protection(f"privacy.dp.mode={mode}")
    assert f"mode “{mode}”" in sentence
    assert MECHANISMS[mode].summary in sentence
    assert ("guaranteed" in sentence, "claimed" in sentence) == (
        MECHANISMS[mode].guaranteed,
        not MECHANISMS[mode].guaranteed,
    )


def test_a_mode_of_a_package_that_is_not_installed_is_named() -> None:
    assert "mode “gone”, σ 1.0)" in protection("privacy.dp.mode=gone")
