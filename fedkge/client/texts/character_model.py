"""A character language model as Flair publishes them: an LSTM over characters (Akbik et al., 2018)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedkge.client.texts.checkpoint_file import StoredTensor, read_checkpoint
from fedkge.client.training.threads import one_thread
from fedkge.errors import DataError

__all__ = ["CharacterModel"]

_CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of each layer
_LONGEST = 100  # characters of a setting
_END = " "  # stands after each text: the state there has read its last word as a whole


class Dictionary:
    """Stands in for flair.data.Dictionary; what it holds is checked where it is used."""

    item2idx: object = None


class CharacterModel:
    """States after each character; a backward model reads texts from their end."""

    def __init__(
        self,
        numbers: dict[bytes, int],
        weights: dict[str, Tensor],
        forward: bool,
        delimiter: str,
        layers: int,
        identity: str,
    ) -> None:
        self.numbers = numbers
        self.forward = forward
        self.delimiter = delimiter  # stands before each text
        self.identity = identity
        self.characters = weights["encoder.weight"]  # (characters, e)
        self.projection = (weights["proj.weight"], weights["proj.bias"]) if "proj.weight" in weights else None
        states = weights["rnn.weight_hh_l0"].shape[1]
        prefix = "rnn."
        cells = {name.removeprefix(prefix): rows for name, rows in weights.items() if name.startswith(prefix)}
        if layers * len(_CELL) != len(cells):
            raise ValueError(f"{layers} layers, and {len(cells)} weights of layers")
        with torch.device("meta"):  # what a file says of sizes takes no memory
            self.lstm = nn.LSTM(self.characters.shape[1], states, layers)
        self.lstm.load_state_dict(cells, assign=True)
        self.width = len(self.projection[0]) if self.projection else states
        if max(numbers.values(), default=-1) >= len(self.characters):
            raise ValueError("it numbers more characters than it has rows for")

    @classmethod
    def read(cls, path: Path) -> Self:
        """A model from its published file."""
        saved = read_checkpoint(path, {("flair.data", "Dictionary"): Dictionary})
        try:
            kind = _text(saved.get("recurrent_type", "LSTM"))
            if kind.upper() != "LSTM":
                raise ValueError(f"a {kind} in place of an LSTM")
            with path.open("rb") as stream:
                identity = hashlib.file_digest(stream, "sha256").hexdigest()
            return cls(
                _numbers(saved["dictionary"]),
                {name: _tensor(value) for name, value in saved["state_dict"].items()},
                bool(saved["is_forward_lm"]),
                _text(saved.get("document_delimiter", "\n")),
                _count(saved["nlayers"]),
                identity,
            )
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
            reason = str(error).split("\n")[0]
            raise DataError(
                f"{path}: not a character language model as Flair writes them ({type(error).__name__}: "
                f"{reason}); expected a dictionary, is_forward_lm, nlayers and the weights of an LSTM"
            ) from error

    def states(self, texts: Sequence[str]) -> Tensor:
        """(n, b, width) after each character, the delimiter in front and a space at the end counted in."""
        texts = [self.delimiter + (text if self.forward else text[::-1]) + _END for text in texts]
        longest = max(map(len, texts))
        ids = torch.tensor([[self._number(each) for each in text.ljust(longest)] for text in texts])  # (b, n)
        with one_thread(), torch.no_grad():
            states: Tensor = self.lstm(self.characters[ids.T])[0]
            return states if self.projection is None else linear(states, *self.projection)

    def place(self, text: str, start: int, stop: int) -> int:
        """Which state has read the word text[start:stop] and the space behind it (before it, if backward)."""
        return len(self.delimiter) + (stop if self.forward else len(text) - start)

    def _number(self, character: str) -> int:
        return self.numbers.get(character.encode("utf-8", "surrogatepass"), 0)  # the first one is unknown


def _numbers(dictionary: Any) -> dict[bytes, int]:
    numbers = dictionary.item2idx
    for item, number in numbers.items():
        if not isinstance(item, bytes) or type(number) is not int or number < 0:
            raise ValueError("its dictionary is not one of bytes to numbers")
    return dict(numbers)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ValueError("a setting that is no short text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError("a number of layers that is none")
    return value


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, StoredTensor):
        raise ValueError("its state_dict holds something other than tensors")
    return torch.from_numpy(value.array())
