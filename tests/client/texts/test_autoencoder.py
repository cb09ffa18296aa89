"""The LSTM autoencoder: its code against LSTM cells written out, its training, and what it depends on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedkge.client.models import build_model
from fedkge.client.texts import Words, autoencoder, text_encoder
from fedkge.client.texts.autoencoder import Autoencoder, Network, codes, trained
from fedkge.client.texts.encoder import untold
from fedkge.client.texts.hashed import Hashed
from fedkge.client.training.evaluate import measure
from fedkge.client.training.loop import train
from fedkge.client.training.ranks import rank
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings, TrainingSettings
from tests.client.models.test_text_encoders import neighbours

TEXTS = ("red ship at sea", "", "sea", "green bread", "red ship", "an oven for bread and bread", "ship")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(autoencoder, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(weights: dict[str, np.ndarray], name: str, rows: np.ndarray) -> np.ndarray:
    """(n, d) the states after each row (Hochreiter and Schmidhuber, 1997), one number after the other."""
    w, u = weights[f"{name}.weight_ih_l0"], weights[f"{name}.weight_hh_l0"]
    bias = weights[f"{name}.bias_ih_l0"] + weights[f"{name}.bias_hh_l0"]
    h, c, states = np.zeros(u.shape[1]), np.zeros(u.shape[1]), []
    for x in rows:
        i, f, g, o = np.split(w @ x + u @ h + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.array(states)


def of(network: Network) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}


def rebuilt(weights: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    code = lstm(weights, "encoder", rows)[-1]
    states = lstm(weights, "decoder", np.tile(code, (len(rows), 1)))
    return states @ weights["output.weight"].T + weights["output.bias"]


def test_a_code_is_the_last_state_and_is_decoded_at_every_place() -> None:
    words = Hashed(6).words(TEXTS, 32)
    network = trained(words, 5, 2, untold)
    rows, weights = codes(network, words, untold), of(network)
    for number, (start, stop) in enumerate(zip(words.starts, words.starts[1:], strict=False)):
        x = words.vectors[words.ids[start:stop]].astype(np.float64)
        expected = lstm(weights, "encoder", x)[-1] if len(x) else np.zeros(5)
        np.testing.assert_allclose(rows[number], expected, atol=1e-6)
        if len(x):
            given = network(torch.from_numpy(x.astype(np.float32))[:, None])[:, 0].detach().numpy()
            np.testing.assert_allclose(given, rebuilt(weights, x), atol=1e-6)


def mean_error(words: Words, network: Network) -> float:
    weights = of(network)
    parts = [words.vectors[words.ids[a:b]] for a, b in zip(words.starts, words.starts[1:], strict=False)]
    squares = [((rebuilt(weights, x) - x) ** 2).mean(1) for x in parts if len(x)]
    return float(np.concatenate(squares).mean())


def test_training_lowers_the_error_below_that_of_the_mean_word() -> None:
    words = Hashed(6).words(TEXTS, 32)
    short, long = trained(words, 16, 1, untold), trained(words, 16, 300, untold)
    spread = words.vectors[words.ids].var(axis=0).mean()
    assert mean_error(words, long) < 0.5 * spread < mean_error(words, short)


def test_gradients_are_clipped_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def watched(parameters: object, limit: float) -> torch.Tensor:
        parameters = list(parameters)  # type: ignore[call-overload]
        before = clip(parameters, limit)
        norms.append(float(torch.linalg.vector_norm(torch.cat([p.grad.ravel() for p in parameters]))))
        return before

    monkeypatch.setattr(autoencoder.nn.utils, "clip_grad_norm_", watched)
    trained(Hashed(6).words(TEXTS, 32), 5, 2, untold)
    assert norms
    assert max(norms) <= 0.005 * (1 + 1e-5)


def test_it_stops_when_the_loss_has_not_sunk_for_twenty_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoencoder, "_RATE", 0.0)
    done: list[float] = []
    words = Hashed(6).words(("red ship",), 32)
    trained(words, 4, 100, done.append)
    assert len(done) == 21


def test_texts_alone_decide_whatever_their_order_and_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    outcomes = []
    try:
        for threads, texts in ((1, TEXTS), (3, TEXTS), (2, TEXTS[::-1])):
            torch.set_num_threads(threads)
            torch.manual_seed(threads)
            rows = Autoencoder(Hashed(8), epochs=3, width=6).encode(texts, untold)
            outcomes.append(rows[::-1] if texts != TEXTS else rows)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(outcomes[0], outcomes[1])
    np.testing.assert_allclose(outcomes[0], outcomes[2], atol=1e-6)  # batches have other companions
    assert not outcomes[0][1].any()


def test_others_texts_make_another_autoencoder_unless_it_is_trained_on_public_ones(
    tmp_path: Path, cache: Path
) -> None:
    file = tmp_path / "public.tsv"
    file.write_text("".join(f"e{i}\t{text}\n" for i, text in enumerate(TEXTS)), encoding="utf-8")
    own, public = text_encoder("aec:2:hash:8"), text_encoder(f"aec:2:hash:8@{file}")
    mine, yours = TEXTS[:3], (*TEXTS[:1], "a market")
    assert not np.allclose(own.encode(mine, untold)[0], own.encode(yours, untold)[0], atol=1e-4)
    first = public.encode(mine, untold)
    np.testing.assert_allclose(first[0], public.encode(yours, untold)[0], atol=1e-6)
    (kept,) = (cache / "autoencoders").iterdir()
    stamp = kept.stat().st_mtime_ns
    np.testing.assert_array_equal(public.encode(mine, untold), first)
    assert kept.stat().st_mtime_ns == stamp  # it was read, not trained again
    kept.write_bytes(kept.read_bytes()[:50])
    np.testing.assert_array_equal(public.encode(mine, untold), first)
    identities = {own.identity, public.identity, text_encoder("aec:3:hash:8").identity}
    file.write_text("a\tother texts\n", encoding="utf-8")
    assert len(identities | {text_encoder(f"aec:2:hash:8@{file}").identity}) == 4


def test_progress_adds_up_to_the_texts() -> None:
    done: list[float] = []
    Autoencoder(Hashed(8), epochs=3, width=6).encode(TEXTS, done.append)
    assert sum(done) == pytest.approx(len(TEXTS), rel=0.3)  # those without words take no time
    assert len(done) > 8


def test_models_of_words_are_told_that_it_has_none() -> None:
    with pytest.raises(SettingError, match="codes of whole texts and no vectors of words"):
        build_model(ModelSettings(name="DKRL", options={"text": "aec:hash:8"}), neighbours(20), 0)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match=r"text encoder 'aec:hash@none\.tsv': .*no file none\.tsv"):
        text_encoder("aec:hash@none.tsv")


@pytest.mark.parametrize("weights", ["global", "gate"])
def test_with_fusion_it_tells_people_that_were_never_met(weights: str) -> None:
    """What the paper calls Torchcoder-AEC, end to end."""
    people = neighbours(60)
    options = {"text": "aec:60:hash:32", "weights": weights}
    model = build_model(ModelSettings(name="Fusion", dim=8, margin=2.0, options=options), people, 0)
    settings = TrainingSettings(batch_size=64, negatives=16, learning_rate=0.02, corrupt="both")
    train(model, people, np.random.default_rng(0), settings, epochs=30)
    assert measure(rank(model, people))["mrr"] > 1.5 * np.mean(1 / np.arange(1, people.num_entities + 1))
