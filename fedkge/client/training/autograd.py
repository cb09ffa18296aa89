"""A training step in plain torch, for devices that the kernels do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from fedkge.client.kernels.losses import find_loss, loss_per_triple
from fedkge.client.models.model import Model
from fedkge.client.training.negatives import Batch
from fedkge.client.training.optimizers import OPTIMIZERS, State, build_optimizer
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings

__all__ = ["AutogradStep"]

_TORCH: dict[str, Any] = {
    "Adam": torch.optim.Adam,
    "LazyAdam": torch.optim.SparseAdam,
    "Adagrad": torch.optim.Adagrad,
    "SGD": torch.optim.SGD,
}
_NAMES = {"mean": "exp_avg", "variance": "exp_avg_sq", "sum": "sum"}  # ours, torch's


class AutogradStep:
    """The same step as the kernels', by autograd of the model's own score."""

    def __init__(
        self, model: Model, settings: TrainingSettings, optimizer: State | None = None, device: str = "cpu"
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise SettingError('training.device: no CUDA device here; set training.device = "cpu"')
        self.model = model
        self.settings = settings
        self.device = device
        self.loss = find_loss(settings.loss)
        # Checks the name and the shapes of a given state by the same code as on the processor.
        checked = build_optimizer(settings.optimizer, model.tables, settings.learning_rate)
        if optimizer is not None:
            checked.load(optimizer)
        self.sparse = settings.optimizer == "LazyAdam"
        self.tables = {
            name: torch.from_numpy(table).to(device).requires_grad_() for name, table in model.tables.items()
        }
        self.optimizer = _TORCH[settings.optimizer](self.tables.values(), lr=settings.learning_rate)
        if optimizer is not None:
            self._restore(checked.state())

    def __call__(self, batch: Batch) -> float:
        scores = self._scores(batch)
        margin, temperature = self.model.settings.margin, self.settings.adversarial_temperature
        loss = loss_per_triple(self.loss, scores, margin, temperature).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self._publish()
        return float(loss.detach())

    def _scores(self, batch: Batch) -> Tensor:
        """(b, 1 + n), higher is truer, around zero; −inf where there is no candidate."""
        anchors, relations = self._ids(batch.anchors), self._ids(batch.relations)
        candidates = self._ids(batch.candidates)
        h = self._rows("entity", anchors)[:, None]  # (b, 1, w)
        r = self._rows("relation", relations)[:, None]
        c = self._rows("entity", candidates.clamp(min=0))  # (b, 1 + n, w)
        k = batch.num_tails
        scores = torch.cat([self.model.score(h[:k], r[:k], c[:k]), self.model.score(c[k:], r[k:], h[k:])])
        scores = scores * self.model.scale.to(self.device)[relations][:, None] + self.model.shift
        return scores.masked_fill(candidates < 0, -torch.inf)

    def _rows(self, name: str, ids: Tensor) -> Tensor:
        return embedding(ids, self.tables[name], sparse=self.sparse)

    def _ids(self, ids: np.ndarray[Any, np.dtype[np.int32]]) -> Tensor:
        return torch.from_numpy(ids.astype(np.int64)).to(self.device)

    def _publish(self) -> None:
        """Let the model see what the device holds (on the processor it is the same memory)."""
        if self.device != "cpu":
            self.model.entity.copy_(self.tables["entity"].detach())
            self.model.relation.copy_(self.tables["relation"].detach())

    def state(self) -> State:
        steps = 0
        arrays: State = {}
        for name, table in self.tables.items():
            kept = self.optimizer.state[table]
            steps = int(kept.get("step", steps))
            for moment in OPTIMIZERS[self.settings.optimizer].moments:
                arrays[f"{name}.{moment}"] = kept[_NAMES[moment]].detach().cpu().numpy().copy()
        return {"steps": np.array(steps, dtype=np.int64), **arrays}

    def _restore(self, state: State) -> None:
        steps = float(state["steps"])
        for name, table in self.tables.items():
            kept = self.optimizer.state[table]
            kept["step"] = int(steps) if self.sparse else torch.tensor(steps)
            for moment in OPTIMIZERS[self.settings.optimizer].moments:
                kept[_NAMES[moment]] = torch.from_numpy(state[f"{name}.{moment}"]).to(self.device)
