"""Models of the transformers library, out of a folder that the test writes, and without a network."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import numpy as np
import pytest
import torch

from fedkge.client.texts import text_encoder
from fedkge.client.texts.encoder import untold
from fedkge.client.texts.transformer import Transformer
from fedkge.errors import DownloadError

transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "kitten", "market", "the", "sat"]
TEXTS = ["cats sat", "the market", "", "kitten", "the cat sat the kitten sat the market"]


def write(folder: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(WORDS), **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    write(path)
    return path


@pytest.fixture
def encoder(folder: Path) -> Transformer:
    encoder = text_encoder(f"transformers:{folder}")
    assert isinstance(encoder, Transformer)
    return encoder


def states(encoder: Transformer, ids: list[int]) -> np.ndarray:
    """(n, 8) of one text alone, special tokens around it."""
    with torch.no_grad():
        tokens = torch.tensor([[2, *ids, 3]])
        return encoder.model(input_ids=tokens).last_hidden_state[0].numpy()


def test_a_text_is_the_mean_of_its_last_states_in_any_company(encoder: Transformer) -> None:
    rows = encoder.encode(TEXTS, untold)
    assert rows.shape == (5, encoder.width) == (5, 8)
    np.testing.assert_allclose(rows[0], states(encoder, [5, 6, 10]).mean(0), atol=1e-6)
    np.testing.assert_allclose(rows[1], states(encoder, [9, 8]).mean(0), atol=1e-6)
    np.testing.assert_allclose(rows[4], states(encoder, [9, 5, 10, 9, 7, 10, 9, 8]).mean(0), atol=1e-6)
    assert not rows[2].any()


def test_words_are_pieces_with_rows_of_the_first_layer(encoder: Transformer) -> None:
    words = encoder.words(["the cats sat", "", "CATS"], 2)
    np.testing.assert_array_equal(np.diff(words.starts), [2, 0, 2])
    table = encoder.model.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(words.vectors[words.ids[:2]], table[[5, 6]])


def test_sequences_are_last_states_without_special_tokens(encoder: Transformer) -> None:
    words = encoder.sequences(TEXTS, 5, untold)
    np.testing.assert_array_equal(np.diff(words.starts), [3, 2, 0, 1, 5])
    np.testing.assert_allclose(words.vectors[:3], states(encoder, [5, 6, 10])[1:-1], atol=1e-6)
    long = states(encoder, [9, 5, 10, 9, 7, 10, 9, 8])
    np.testing.assert_allclose(words.vectors[-5:], long[1:6], atol=1e-6)


def test_threads_change_no_bit(encoder: Transformer) -> None:
    before = torch.get_num_threads()
    outcomes = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            outcomes.append(encoder.encode(TEXTS * 8, untold))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*outcomes)


def test_another_content_of_a_folder_is_another_encoder(encoder: Transformer, tmp_path: Path) -> None:
    write(tmp_path)
    first = text_encoder(f"transformers:{tmp_path}").identity
    assert text_encoder(f"transformers:{tmp_path}").identity == first != encoder.identity
    write(tmp_path, seed=1)
    assert text_encoder(f"transformers:{tmp_path}").identity != first


def test_progress_adds_up_to_the_texts(encoder: Transformer) -> None:
    done: list[float] = []
    encoder.encode(TEXTS * 8, done.append)
    assert sum(done) == 40
    assert len(done) > 2


@pytest.mark.parametrize("content", [None, "{}", "not json"])
def test_a_folder_without_a_model_is_named_in_a_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(DownloadError, match="holds no model that can be loaded") as caught:
        text_encoder(f"transformers:{tmp_path}")
    assert "\n" not in str(caught.value)


def test_damaged_weights_are_named_in_a_line(tmp_path: Path) -> None:
    write(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(DownloadError, match="holds no model that can be loaded") as caught:
        text_encoder(f"transformers:{tmp_path}")
    assert "\n" not in str(caught.value)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection is refused at once; whoever tries again and again takes long."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


def test_a_name_without_a_network_fails_soon_and_says_what_to_do(no_network: None) -> None:
    begun = monotonic()
    with pytest.raises(
        DownloadError, match=r"no such folder, .*where there is a network, and give"
    ) as caught:
        text_encoder("transformers:nobody/has-such-a-model")
    assert monotonic() - begun < 15
    assert "\n" not in str(caught.value)


def test_offline_the_hub_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        text_encoder("transformers:nobody/has-such-a-model")
