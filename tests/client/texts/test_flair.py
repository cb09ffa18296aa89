"""Flair's character models: files as it writes them, states character by character, hostile files."""

from __future__ import annotations

import os
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.client.models.text_encoders import BOW, DKRL
from fedkge.client.texts import encoding, text_encoder
from fedkge.client.texts.character_model import Dictionary
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


STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\x00K\x04\x85K\x01\x85\x89}tR"
DICTIONARY = b"cflair.data\nDictionary\n"
OWNED = b"}X\x08\x00\x00\x00item2idxX\x05\x00\x00\x00OWNEDs"
BUILT = {
    "a class": (DICTIONARY + b"N" + OWNED + b"\x86b", "sets attributes of a type"),
    "a tensor": (TENSOR + b"}X\x06\x00\x00\x00offsetK\x63sb", "sets attributes of a StoredTensor"),
    "a storage": (STORAGE + b"}X\x07\x00\x00\x00numbersK\x01sb", "sets attributes of a Storage"),
    "slots": (DICTIONARY + b")\x81N" + OWNED + b"\x86b", "something other than attributes by name"),
    "by number": (DICTIONARY + b")\x81}K\x01K\x02sb", "something other than attributes by name"),
    "a key": (TENSOR + b"K\x01", "a key that is a StoredTensor"),
    "pairs": (
        b"ccollections\nOrderedDict\n]K\x01\x85K\x02\x86a\x85R",
        "a key that is a tuple",
    ),
    "a long shape": (
        TENSOR.replace(b"K\x04\x85K\x01\x85", b"(" + b"K\x01" * 9 + b"tK\x01\x85"),
        "without a storage",
    ),
    "a storage of tuples": (STORAGE.replace(b"X\x01\x00\x00\x000", b")"), "a storage of an unknown kind"),
    "views": (b"]" + 9 * (TENSOR + b"a"), "36 numbers, where it stores 4"),
}


def zipped(path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    """A checkpoint of one storage of four numbers."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("m/data.pkl", pickled)
        archive.writestr("m/data/0", bytes(16))
    return path


@pytest.mark.parametrize("what", BUILT)
def test_a_file_fills_nothing_but_its_dictionary(tmp_path: Path, what: str) -> None:
    code, words = BUILT[what]
    body = code if what == "a key" else b"X\x01\x00\x00\x00a" + code
    before = dict(vars(Dictionary))
    with pytest.raises(DataError, match=f"refused, it.*{words}"):
        text_encoder(f"flair:{zipped(tmp_path / 'lm.pt', b'}' + body + b's.')}")
    assert dict(vars(Dictionary)) == before


@pytest.mark.parametrize(
    ("pickled", "words"),
    [
        (b"}" + b")" + b"\x85" * 3_000_000 + b"K\x01s.", "more than 100 values within values"),
        (b"}r" + (2**26).to_bytes(4, "little") + b".", "as number 67,108,864"),
        (b"X" + (2**23).to_bytes(4, "little") + b"a" * 2**23 + b".", "longer than 4,194,304 bytes"),
    ],
    ids=["nested", "memo", "long"],
)
@pytest.mark.parametrize("newer", [True, False])
def test_a_file_cannot_ask_for_more_than_it_has(
    tmp_path: Path, pickled: bytes, words: str, newer: bool
) -> None:
    path = tmp_path / "lm.pt"
    if newer:
        zipped(path, b"\x80\x02" + pickled)
    else:
        heads = (pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {}))
        path.write_bytes(b"".join(heads) + b"\x80\x02" + pickled)
    with pytest.raises(DataError, match=f"refused, .*{words}"):
        text_encoder(f"flair:{path}")


def test_members_that_expand_or_overlap_are_refused(tmp_path: Path) -> None:
    body = b"}X\x01\x00\x00\x00a" + TENSOR + b"s."
    packed = zipped(tmp_path / "packed.pt", body, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match=r"its member 'm/data\.pkl' is packed"):
        text_encoder(f"flair:{packed}")
    path = zipped(tmp_path / "lm.pt", body)
    raw = bytearray(path.read_bytes())
    entry = raw.rindex(b"PK\x01\x02")  # of the storage, in the central directory
    raw[entry + 24 : entry + 28] = (2**31).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"its member 'm/data/0' is packed"):
        text_encoder(f"flair:{path}")


def test_sizes_that_a_file_only_names_take_no_memory(dictionary: Any, tmp_path: Path) -> None:
    saved = checkpoint(dictionary, True)
    wide = torch.zeros(0, 2**30)
    for changes in (
        {"nlayers": 10**12},
        {"nlayers": [1]},
        {"recurrent_type": ["LSTM"]},
        {"state_dict": {**saved["state_dict"], "encoder.weight": wide}},
        {"state_dict": {**saved["state_dict"], "rnn.weight_hh_l0": wide}},
        {"state_dict": {**saved["state_dict"], "rnn.weight_hh_l0": torch.zeros(3)}},
    ):
        torch.save({**saved, **changes}, tmp_path / "lm.pt")
        with pytest.raises(DataError, match="not a character language model"):
            text_encoder(f"flair:{tmp_path / 'lm.pt'}")


def test_a_storage_ends_where_the_file_does(dictionary: Any, tmp_path: Path) -> None:
    path = tmp_path / "lm.pt"
    torch.save(checkpoint(dictionary, True), path, _use_new_zipfile_serialization=False)
    raw = path.read_bytes()
    count = (4 * 34).to_bytes(8, "little")  # of the rows of characters
    assert raw.count(count) == 1
    path.write_bytes(raw.replace(count, (2**40).to_bytes(8, "little")))
    with pytest.raises(DataError, match="it ends before its numbers do"):
        text_encoder(f"flair:{path}")


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
