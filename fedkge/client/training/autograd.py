"""A training step in plain torch, for devices and for decoders that the kernels do not reach."""

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
from fedkge.strategy import Term

__all__ = ["AutogradStep"]

_TORCH: dict[str, Any] = {
    "Adam": torch.optim.Adam,
    "LazyAdam": torch.optim.SparseAdam,
    "Adagrad": torch.optim.Adagrad,
    "SGD": torch.optim.SGD,
}
_NAMES = {"mean": "exp_avg", "variance": "exp_avg_sq", "sum": "sum"}  # ours, torch's


class AutogradStep:
    """The same step as the kernels', by autograd of the model's own encoder and score."""

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        optimizer: State | None = None,
        term: Term | None = None,
        rng: np.random.Generator | None = None,
        device: str = "cpu",
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise SettingError('training.device: no CUDA device here; set training.device = "cpu"')
        self.model = model
        self.settings = settings
        self.device = device
        self.loss = find_loss(settings.loss)
        # Checks the name and the shapes of a given state by the same code as on the processor.
        checked = build_optimizer(
            settings.optimizer, model.rows, settings.learning_rate, settings.weight_decay
        )
        if optimizer is not None:
            checked.load(optimizer)
        self.term = term
        self.dense = checked.dense
        self.sparse = settings.optimizer == "LazyAdam"  # which wants sparse gradients
        # Whether torch may make them itself; it has no norm of those.
        self.direct = not (model.has_encoder or term or settings.max_gradient_norm)
        self.leaves = {
            name: torch.from_numpy(rows).to(device).requires_grad_() for name, rows in model.rows.items()
        }
        self.bound = model.bind(
            {name: _shaped(leaf, model[name]) for name, leaf in self.leaves.items()},
            {name: buffer.to(device) for name, buffer in model.buffers.items()},
            rng,
        )
        self.max_gradient_norm = settings.max_gradient_norm
        self.scale = model.scale.to(device)
        decay = {"weight_decay": settings.weight_decay} if OPTIMIZERS[settings.optimizer].decays else {}
        self.optimizer = _TORCH[settings.optimizer](self.leaves.values(), settings.learning_rate, **decay)
        if optimizer is not None:
            self._restore(checked.state())

    def __call__(self, batch: Batch) -> float:
        scores = self._scores(batch)
        margin, temperature = self.model.settings.margin, self.settings.adversarial_temperature
        loss = loss_per_triple(self.loss, scores, margin, temperature).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.max_gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.leaves.values(), self.max_gradient_norm)
        if self.term is not None:
            self._add_term(self.term)
        if self.sparse:
            for leaf in self.leaves.values():
                leaf.grad = leaf.grad if leaf.grad is None or leaf.grad.is_sparse else _sparse(leaf.grad)
            self._correct_epsilon()
        self.optimizer.step()
        self._publish()
        return float(loss.detach())

    def take_rate(self, learning_rate: float) -> None:
        """Go on with another learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def _scores(self, batch: Batch) -> Tensor:
        """(b, 1 + n), higher is truer, around zero; −inf where there is no candidate."""
        anchors, relations = self._ids(batch.anchors), self._ids(batch.relations)
        candidates = self._ids(batch.candidates)
        entities, table = self.bound.encode()
        h = self._rows(entities, anchors)[:, None]  # (b, 1, w)
        r = self._rows(table.to(self.device), relations)[:, None]
        c = self._rows(entities, candidates.clamp(min=0))  # (b, 1 + n, w)
        k, bound = batch.num_tails, self.bound
        scores = torch.cat([bound.score(h[:k], r[:k], c[:k]), bound.score_head(c[k:], r[k:], h[k:])])
        scores = scores * self.scale[relations][:, None] + self.model.shift
        return scores.masked_fill(candidates < 0, -torch.inf)

    def _rows(self, table: Tensor, ids: Tensor) -> Tensor:
        return embedding(ids, table, sparse=self.sparse and self.direct)

    def _add_term(self, term: Term) -> None:
        """To the gradients of the rows that this step moves."""
        for name, leaf in self.leaves.items():
            gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            ids = torch.arange(len(leaf), device=self.device) if self.dense else _touched(gradient)
            addition = term.gradient(
                name, ids.cpu().numpy().astype(np.int32), leaf.detach()[ids].cpu().numpy()
            )
            if addition is not None:
                gradient[ids] += torch.from_numpy(addition).to(self.device)
            leaf.grad = gradient

    def _correct_epsilon(self) -> None:
        """Let SparseAdam's ε weigh as Adam's does.

        Adam adds ε to the root of the second moment after its bias is corrected, SparseAdam before: for
        gradients below 1e-5 its first steps are shorter by a fifth and more.
        """
        rule = OPTIMIZERS[self.settings.optimizer]
        for group in self.optimizer.param_groups:
            steps = max(int(self.optimizer.state[leaf].get("step", 0)) for leaf in group["params"])
            group["eps"] = rule.epsilon * (1 - rule.beta2 ** (steps + 1)) ** 0.5

    def _ids(self, ids: np.ndarray[Any, np.dtype[np.int32]]) -> Tensor:
        return torch.from_numpy(ids.astype(np.int64)).to(self.device)

    def _publish(self) -> None:
        """Let the model see what the device holds (on the processor it is the same memory)."""
        if self.device != "cpu":
            for name, leaf in self.leaves.items():
                self.model[name].copy_(leaf.detach().view(self.model[name].shape))
            for name in self.model.state_buffers:
                self.model[name].copy_(self.bound[name])

    def state(self) -> State:
        steps = 0
        arrays: State = {}
        for name, leaf in self.leaves.items():
            kept = self.optimizer.state[leaf]
            steps = int(kept.get("step", steps))
            for moment in OPTIMIZERS[self.settings.optimizer].moments:
                arrays[f"{name}.{moment}"] = kept[_NAMES[moment]].detach().cpu().numpy().copy()
        return {"steps": np.array(steps, dtype=np.int64), **arrays}

    def _restore(self, state: State) -> None:
        steps = float(state["steps"])
        for name, leaf in self.leaves.items():
            kept = self.optimizer.state[leaf]
            kept["step"] = int(steps) if self.sparse else torch.tensor(steps)
            for moment in OPTIMIZERS[self.settings.optimizer].moments:
                kept[_NAMES[moment]] = torch.from_numpy(state[f"{name}.{moment}"]).to(self.device)


def _shaped(leaf: Tensor, like: Tensor) -> Tensor:
    return leaf if leaf.shape == like.shape else leaf.view(like.shape)


def _touched(gradient: Tensor) -> Tensor:
    return gradient.ne(0).any(dim=1).nonzero()[:, 0]


def _sparse(gradient: Tensor) -> Tensor:
    """The rows that are not zero."""
    rows = _touched(gradient)
    return torch.sparse_coo_tensor(rows[None], gradient[rows], gradient.shape, check_invariants=False)
