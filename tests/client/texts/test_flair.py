"""Flair's character models: files as it writes them, states character by character, hostile files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.client.models.text_encoders import BOW, DKRL
from fedkge.client.texts import encoding, text_encoder
from fedkge.client.texts.encoder import STOP_WORDS, untold
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, DownloadError, SettingError
from fedkge.experiment import ModelSettings
from tests.client.models.test_text_encoders import graph

CHARACTERS = "\n abcdefghijklmnopqrstuvwxyzABC,."
TEXTS = ["Big ship,  the sea.", "", "ship", "A cabin of_the ship: ünknown letters"]
TOKENS = [["Big", "ship", ",", "the", "sea", "."], [], ["ship"]]
TOKENS += [["A", "cabin", "of", "the", "ship", ":", "ünknown", "letters"]]


@pytest.fixture
def dictionary() -> Iterator[Any]:
    """A class flair.data.Dictionary, as pickles name it, while files are written."""
    package, data = ModuleType("flair"), ModuleType("flair.data")
    kind = type("Dictionary", (), {"__module__": "flair.data"})
    data.Dictionary = kind  # type: ignore[attr-defined]
    sys.modules |= {"flair": package, "flair.data": data}
    try:
        words = kind()
        items = [b"<unk>", *(character.encode() for character in CHARACTERS)]
        words.item2idx, words.idx2item = {item: i for i, item in enumerate(items)}, items
        words.add_unk, words.multi_label = True, False
        yield words
    finally:
        del sys.modules["flair"], sys.modules["flair.data"]


def checkpoint(dictionary: Any, forward: bool, nout: int | None = None, layers: int = 1) -> dict[str, Any]:
    torch.manual_seed(int(forward))
    count, states = len(dictionary.idx2item), 6
    parts = {"encoder": torch.nn.Embedding(count, 4), "rnn": torch.nn.LSTM(4, states, layers)}
    if nout:
        parts["proj"] = torch.nn.Linear(states, nout)
    parts["decoder"] = torch.nn.Linear(nout or states, count)
    return {
        "state_dict": torch.nn.ModuleDict(parts).state_dict(),
        "dictionary": dictionary,
        "is_forward_lm": forward,
        "hidden_size": states,
        "nlayers": layers,
        "embedding_size": 4,
        "nout": nout,
        "document_delimiter": "\n",
        "dropout": 0.1,
    }


def slow_states(saved: dict[str, Any], text: str) -> list[np.ndarray]:
    """After each character, one by one through cells."""
    weights, cells = saved["state_dict"], []
    for layer in range(saved["nlayers"]):
        cell = torch.nn.LSTMCell(4 if layer == 0 else 6, 6)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({name: weights[f"rnn.{name}_l{layer}"] for name in names})
        cells.append((cell, [torch.zeros(1, 6), torch.zeros(1, 6)]))
    states = []
    with torch.no_grad():
        for character in text:
            number = saved["dictionary"].item2idx.get(character.encode(), 0)
            x = weights["encoder.weight"][number][None]
            for cell, memory in cells:
                memory[:] = cell(x, tuple(memory))
                x = memory[0]
            if saved["nout"]:
                x = x @ weights["proj.weight"].T + weights["proj.bias"]
            states.append(x[0].numpy())
    return states


def slow_words(saved: dict[str, Any], tokens: list[str]) -> list[np.ndarray]:
    """Of each token: what the model knows when it has read it whole, and the space that follows."""
    rows = []
    for number in range(len(tokens)):
        if saved["is_forward_lm"]:
            text = "".join(f"{token} " for token in tokens[: number + 1])
        else:
            text = "".join(f"{token[::-1]} " for token in tokens[number:][::-1])
        rows.append(slow_states(saved, "\n" + text)[-1])
    return rows


@pytest.mark.parametrize(
    ("protocol", "zipped", "nout", "layers"),
    [(2, True, None, 1), (4, True, 3, 1), (2, False, None, 2), (4, False, 3, 1), (5, True, None, 1)],
)
def test_states_of_words_are_those_of_one_character_after_the_other(
    dictionary: Any, tmp_path: Path, protocol: int, zipped: bool, nout: int | None, layers: int
) -> None:
    models = [checkpoint(dictionary, forward, nout, layers) for forward in (True, False)]
    paths = [tmp_path / "forward.pt", tmp_path / "backward.pt"]
    for path, saved in zip(paths, models, strict=True):
        torch.save(saved, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    encoder = text_encoder(f"flair:{paths[0]},{paths[1]}")
    assert encoder.width == 2 * (nout or 6)
    words = encoder.words(TEXTS, 4)
    for number, tokens in enumerate(TOKENS):
        rows = words.vectors[words.starts[number] : words.starts[number + 1]]
        counted = [i for i, t in enumerate(tokens) if t[0].isalnum() and t.lower() not in STOP_WORDS][:4]
        read = tokens[: counted[-1] + 1] if len(counted) == 4 else tokens
        expected = [np.concatenate([slow_words(saved, read)[i] for saved in models]) for i in counted]
        assert len(rows) == len(expected)
        if expected:
            np.testing.assert_allclose(rows, expected, atol=1e-5)
    means = encoder.encode(TEXTS, untold)
    np.testing.assert_allclose(means[2], words.vectors[words.starts[2]], atol=1e-6)
    assert not means[1].any()


def test_word_vectors_stand_beside_them(dictionary: Any, tmp_path: Path) -> None:
    torch.save(checkpoint(dictionary, True), tmp_path / "lm.pt")
    (tmp_path / "glove.txt").write_text("ship 1 2\nbig 3 4\n", encoding="utf-8")
    encoder = text_encoder(f"flair:glove:{tmp_path / 'glove.txt'},{tmp_path / 'lm.pt'}")
    words = encoder.words(TEXTS[:1], 32)
    np.testing.assert_array_equal(words.vectors[:, :2], [[3, 4], [1, 2], [0, 0]])
    alone = text_encoder(f"flair:{tmp_path / 'lm.pt'}")
    np.testing.assert_array_equal(words.vectors[:, 2:], alone.words(TEXTS[:1], 32).vectors)
    assert encoder.identity != alone.identity


def test_models_of_words_take_them_frozen(
    dictionary: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "cache_folder", lambda: tmp_path)
    torch.save(checkpoint(dictionary, True), tmp_path / "lm.pt")
    options = {"text": f"flair:{tmp_path / 'lm.pt'}", "trainable": False}
    described: KnowledgeGraph = graph()
    model = DKRL.build(ModelSettings(dim=5, options=options), described, 0)
    assert model.entity.norm(dim=1).gt(0.99).sum() == sum(map(bool, described.texts["entity"]))
    with pytest.raises(SettingError, match=r"set model\.options\.trainable = false"):
        BOW.build(ModelSettings(dim=5, options={**options, "trainable": True}), described, 0)


class Hostile:
    """What runs a command as soon as a careless reader sees it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_hostile_file_is_refused_and_runs_nothing(
    dictionary: Any, tmp_path: Path, zipped: bool, protocol: int
) -> None:
    saved = {**checkpoint(dictionary, True), "dropout": Hostile(tmp_path / "ran")}
    path = tmp_path / "lm.pt"
    torch.save(saved, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match=r"lm\.pt: refused, it asks for (posix|nt)\.system; only tensors"):
        text_encoder(f"flair:{path}")
    assert not (tmp_path / "ran").exists()


def broken(saved: dict[str, Any], what: str) -> dict[str, Any]:
    if what == "no dictionary":
        return {name: value for name, value in saved.items() if name != "dictionary"}
    if what == "GRU":
        return {**saved, "recurrent_type": "GRU"}
    if what == "numbers":
        saved["dictionary"].item2idx[b"z"] = 99
    if what == "texts":
        saved["dictionary"].item2idx = {"a": 1}
    if what == "weights":
        saved["state_dict"]["rnn.weight_ih_l0"] = torch.zeros(3, 3)
    if what == "strided":
        saved["state_dict"]["encoder.weight"] = torch.zeros(4, 34).T
    return saved


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no dictionary", "not a character language model .*'dictionary'"),
        ("GRU", "a GRU in place of an LSTM"),
        ("numbers", "numbers more characters than"),
        ("texts", "not one of bytes to numbers"),
        ("weights", "not a character language model"),
        ("strided", "refused, it has a tensor that is not stored row after row"),
    ],
)
def test_what_is_no_such_model_is_named(dictionary: Any, tmp_path: Path, what: str, words: str) -> None:
    torch.save(broken(checkpoint(dictionary, True), what), tmp_path / "lm.pt")
    with pytest.raises(DataError, match=words) as caught:
        text_encoder(f"flair:{tmp_path / 'lm.pt'}")
    assert "\n" not in str(caught.value)


def test_damaged_and_missing_files_are_named(
    dictionary: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lm.pt"
    for zipped in (True, False):
        torch.save(checkpoint(dictionary, True), path, _use_new_zipfile_serialization=zipped)
        whole = path.read_bytes()
        for size in (0, 10, len(whole) // 3, len(whole) - 40):
            path.write_bytes(whole[:size])
            with pytest.raises(DataError, match=r"lm\.pt: "):
                text_encoder(f"flair:{path}")
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    with pytest.raises(DownloadError, match=r"'flair:news-forward': no file news-forward-0\.4\.1\.pt or .*"):
        text_encoder("flair:news-forward")
