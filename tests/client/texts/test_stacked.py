"""Encoders side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedkge.client.texts import encoded, text_encoder
from fedkge.errors import SettingError, UnknownNameError

TEXTS = ("a cow with spots", "", "the cat")


def test_a_stack_has_each_part_at_length_one() -> None:
    stack = text_encoder("hash:8+hash:16")
    rows = encoded(stack, TEXTS)
    assert rows.shape == (3, stack.width) == (3, 24)
    for part, columns in (("hash:8", slice(8)), ("hash:16", slice(8, None))):
        alone = encoded(text_encoder(part), TEXTS)
        for row in (0, 2):
            np.testing.assert_allclose(rows[row, columns], alone[row] / np.linalg.norm(alone[row]), rtol=1e-6)
    assert not rows[1].any()  # no text, no vector


def test_a_path_may_have_a_plus_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "two+glove.txt"
    path.write_text("cow 1 0\ncat 0 1\n", encoding="utf-8")
    np.testing.assert_array_equal(encoded(text_encoder(f"glove:{path}"), TEXTS)[2], [0, 1])
    assert encoded(text_encoder(f"glove:{path}+hash:8"), TEXTS).shape == (3, 10)


def test_a_stack_has_no_words_and_no_unknown_parts() -> None:
    with pytest.raises(SettingError, match="name one of its parts"):
        text_encoder("hash+hash:8").words(TEXTS, 4)
    with pytest.raises(UnknownNameError, match="text encoder 'nothing'"):
        text_encoder("nothing+hash")


def test_a_stack_is_fitted_part_by_part() -> None:
    stack = text_encoder("aec:2:hash:8+hash:4").fitted(TEXTS)
    alone = text_encoder("aec:2:hash:8").fitted(TEXTS)
    new = ("a cow", "of cats")
    np.testing.assert_array_equal(
        encoded(stack, new)[:, 128:], encoded(text_encoder("hash+hash:4"), new)[:, 256:]
    )
    rows = encoded(alone, new)
    np.testing.assert_allclose(encoded(stack, new)[0, :128], rows[0] / np.linalg.norm(rows[0]), rtol=1e-6)
    assert not np.allclose(rows, encoded(text_encoder("aec:2:hash:8"), new))  # which trains on these alone
