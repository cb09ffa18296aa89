"""An LSTM autoencoder over the word vectors of texts, trained before anything else and without any triple.

The text part of what its authors call Torchcoder-AEC, as the TorchCoder library has it: an LSTM, of which the
last state is the code; then an LSTM that reads the code at each place, and a linear layer to word vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import Progress, TextEncoder, Words, shortened, text_encoder
from fedkge.client.training.threads import one_thread
from fedkge.datasets.download import cache_folder
from fedkge.datasets.features import find
from fedkge.errors import DataError, SettingError, StorageError
from fedkge.storage import staged

__all__ = ["Autoencoder", "Network", "trained"]

_WIDTH = 128  # of a code: the paper's rows are as wide
_LENGTH = 32  # words of a text; those beyond are left out
_EPOCHS = 20  # where TorchCoder has 10,000, each a single step over all texts
_MOST_EPOCHS = 10_000
_DIGITS = 9  # as many as are read: Python refuses to read thousands
_PATIENCE = 20  # epochs without a lower loss; as in TorchCoder, of training
_RATE = 1e-3
_GRADIENT_NORM = 0.005
_BATCH = 128

_training = Lock()  # clients of one process that read the same public texts train once


class Network(nn.Module):
    """LSTM(features → d), of which the last state is read by LSTM(d → 2d), then linear(2d → features)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(features, width)
        self.decoder = nn.LSTM(width, 2 * width)
        self.output = nn.Linear(2 * width, features)

    def code(self, x: Tensor) -> Tensor:
        """(n, b, features) to (b, d)."""
        _, (last, _) = self.encoder(x)
        code: Tensor = last[0]
        return code

    def forward(self, x: Tensor) -> Tensor:
        """(n, b, features): what the codes remember of x."""
        states, _ = self.decoder(self.code(x).expand(len(x), -1, -1))
        rebuilt: Tensor = self.output(states)
        return rebuilt


class Autoencoder(TextEncoder):
    """The code that an LSTM autoencoder, trained beforehand on texts alone, has for a text.

    Trained on other texts it is another one, and its codes mean something else. By default these are the
    texts that are to be encoded, so that clients with different texts do not understand each other's codes.
    With a file of public texts, all have the same autoencoder.
    """

    summary = "aec, aec:NAME, aec:NAME@FILE: codes of an LSTM autoencoder, trained on the texts or on a file"
    slow = True

    def __init__(
        self,
        source: TextEncoder,
        public: Sequence[str] | None = None,
        epochs: int = _EPOCHS,
        width: int = _WIDTH,
    ) -> None:
        self.source = source
        self.public = None if public is None else _distinct(public)
        self.epochs = epochs
        self._width = width

    @classmethod
    def of(cls, argument: str) -> Self:
        """`[EPOCHS:][NAME][@FILE]`: epochs, whose word vectors, and a file of public texts to train on."""
        name, at, path = argument.rpartition("@") if "@" in argument else (argument, "", "")
        if at and not path:
            raise SettingError(
                f"text encoder 'aec:{argument}': no file after the @; name one of public texts, or leave out "
                "the @ for the texts that are read"
            )
        epochs, _, rest = name.partition(":")
        if not epochs.isdecimal():
            epochs, rest = str(_EPOCHS), name
        if not epochs.isascii() or len(epochs) > _DIGITS or not 1 <= int(epochs) <= _MOST_EPOCHS:
            raise SettingError(
                f"text encoder 'aec:{shortened(argument)}': expected 1 to {_MOST_EPOCHS:,} epochs"
            )
        if rest.partition(":")[0] == "aec":
            raise SettingError(f"text encoder 'aec:{argument}': it reads word vectors; name what has some")
        source = text_encoder(rest or "glove")
        return cls(source, _public(path, argument) if path else None, int(epochs))

    @classmethod
    def is_of_its_texts(cls, argument: str) -> bool:
        return "@" not in argument

    def fitted(self, texts: Sequence[str]) -> TextEncoder:
        return self if self.public is not None else type(self)(self.source, texts, self.epochs, self.width)

    @property
    def width(self) -> int:
        return self._width

    @property
    def identity(self) -> str:
        digest = "" if self.public is None else hashlib.sha256("\0".join(self.public).encode()).hexdigest()
        return f"aec/1:{self.epochs}:{self.width}:{self.source.identity}:{digest}"

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        shares = self.epochs + 3  # two readings, the epochs, and the codes

        def share(count: int) -> Progress:
            return lambda done: progress(done * len(texts) / max(count, 1) / shares)

        network = self._network(texts if self.public is None else self.public, share)
        words = self.source.sequences(texts, _LENGTH, share(len(texts)))
        return codes(network, words, share(len(texts)))

    def words(self, texts: Sequence[str], length: int) -> Words:
        """None: a code is of a whole text."""
        del texts, length
        raise SettingError(
            "text encoder 'aec': it has codes of whole texts and no vectors of words, which DKRL and BOW "
            'read; set model.options.text = "glove", or take BLP or Fusion'
        )

    def _network(self, texts: Sequence[str], share: Callable[[int], Progress]) -> Network:
        """The autoencoder of some texts, whatever their order; that of public ones is kept on disk."""
        texts = _distinct(texts)
        path = cache_folder() / "autoencoders" / hashlib.sha256(self.identity.encode()).hexdigest()
        with _training:
            kept = None if self.public is None else _read(path, self.source.width, self.width)
            if kept is not None:
                share(1)(self.epochs + 1)
                return kept
            words = self.source.sequences(texts, _LENGTH, share(len(texts)))
            network = trained(words, self.width, self.epochs, share(len(texts)))
            if self.public is not None:
                _write(path, network)
            return network


def trained(words: Words, width: int, epochs: int, progress: Progress) -> Network:
    """An autoencoder of texts; the same texts give the same bits, on any number of threads."""
    rng = np.random.default_rng(0)
    network = _initial(words.vectors.shape[1], width, rng)
    batches = _batches(words)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    best, patience = np.inf, _PATIENCE
    places = max(len(words.ids), 1)
    with one_thread():
        for _ in range(epochs):
            total = 0.0
            for number in rng.permutation(len(batches)):
                x = _vectors(words, batches[number])
                loss = nn.functional.mse_loss(network(x), x)  # texts of one length: every place is a word
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(network.parameters(), _GRADIENT_NORM)
                optimizer.step()
                total += float(loss.detach()) * x.shape[0] * x.shape[1] / places
                progress(x.shape[1])
            patience = _PATIENCE if total < best else patience - 1
            best = min(best, total)
            if patience == 0:
                break
    return network


def codes(network: Network, words: Words, progress: Progress) -> Floats:
    """(texts, d); zero for a text without words."""
    rows = np.zeros((len(words.starts) - 1, network.encoder.hidden_size), dtype=np.float32)
    with one_thread(), torch.no_grad():
        for batch in _batches(words):
            rows[batch] = network.code(_vectors(words, batch)).numpy()
            progress(len(batch))
    return rows


def _initial(features: int, width: int, rng: np.random.Generator) -> Network:
    """Uniform up to 1/√(states, or inputs of the last layer), as torch starts such layers."""
    network = Network(features, width)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            bound = (width if name.startswith("encoder") else 2 * width) ** -0.5
            weights.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(weights.shape))))
    return network


def _batches(words: Words) -> list[NDArray[np.int64]]:
    """The texts that have words, those of one length together: no batch has a place without a word."""
    counts = np.diff(words.starts)
    groups = [np.flatnonzero(counts == count) for count in np.unique(counts[counts > 0])]
    return [group[start : start + _BATCH] for group in groups for start in range(0, len(group), _BATCH)]


def _vectors(words: Words, batch: NDArray[np.int64]) -> Tensor:
    """(n, b, features) of texts of one length."""
    length = int(words.starts[batch[0] + 1] - words.starts[batch[0]])
    places = words.starts[batch] + np.arange(length)[:, None]  # (n, b)
    return torch.from_numpy(words.vectors[words.ids[places]])


def _distinct(texts: Sequence[str]) -> tuple[str, ...]:
    """In an order that says nothing of where they come from."""
    return tuple(sorted(set(texts)))


def _public(path: str, argument: str) -> tuple[str, ...]:
    try:
        return tuple(find(path).texts.values())
    except DataError as error:
        raise DataError(f"text encoder 'aec:{argument}': {error}") from error


def _read(path: Path, features: int, width: int) -> Network | None:
    """What is kept; nothing where there is none, or it is damaged."""
    network = Network(features, width)
    try:
        network.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError):
        return None
    return network


def _write(path: Path, network: Network) -> None:
    try:
        with staged(path) as partial:
            save_file(network.state_dict(), partial)
    except StorageError:
        return  # it is trained again the next time
