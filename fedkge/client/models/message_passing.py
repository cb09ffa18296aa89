"""Messages along the edges of a client's graph, for encoders: each relation acts on what its edges carry.

On the processor kernels pass them, forwards and backwards; elsewhere, and in double precision, plain torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedkge.client.kernels.arrays import Ids
from fedkge.client.kernels.neural import messages
from fedkge.client.kernels.neural.messages import Bundles

__all__ = ["CORRELATE", "MIX", "MULTIPLY", "SUBTRACT", "Composition", "Edges"]


def _same(rows: Tensor) -> Tensor:
    return rows


def _first(rows: Tensor, width: int) -> Tensor:
    del width
    return rows


@dataclass(frozen=True)
class Composition:
    """What becomes of a sender's row on an edge of a relation: in kernels, and edge by edge in torch."""

    forward: Callable[..., None]
    backward: Callable[..., None]
    plain: Callable[[Tensor, Tensor], Tensor]  # (e, w) senders, (e, v) relations to (e, u) messages
    into: Callable[[Tensor], Tensor] = _same  # rows to where that is done …
    back: Callable[[Tensor, int], Tensor] = _first  # … and messages back, to this width

    def of(self, x: Tensor, z: Tensor) -> Tensor:
        """The messages of rows, pair by pair."""
        return self.back(self.plain(self.into(x), self.into(z)), x.shape[-1])


class Edges(NamedTuple):
    """The edges that messages take, as tensors; see `Bundles`."""

    starts: Tensor  # (n + 1,)
    relations: Tensor  # (b,)
    stops: Tensor  # (b + 1,)
    senders: Tensor  # (e,)
    shares: Tensor  # (e,) what each message counts

    @classmethod
    def of(cls, receivers: Ids, relations: Ids, senders: Ids, num_entities: int) -> Edges:
        """Edges in any order; every message counts one."""
        order = np.lexsort((senders, relations, receivers))
        receiver, relation = receivers[order].astype(np.int64), relations[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(receiver) != 0) | (np.diff(relation) != 0)
        first = np.flatnonzero(new)
        starts = np.searchsorted(receiver[first], np.arange(num_entities + 1))
        return cls(
            torch.from_numpy(starts),
            torch.from_numpy(relation[first]),
            torch.from_numpy(np.append(first, len(order))),
            torch.from_numpy(senders[order]),
            torch.ones(len(order)),
        )

    @classmethod
    def named(cls, prefix: str, buffers: Mapping[str, Tensor]) -> Edges:
        """From the buffers that `buffers` gave."""
        return cls(*(buffers[f"{prefix}.{field}"] for field in cls._fields))

    def buffers(self, prefix: str) -> dict[str, Tensor]:
        """For `Model.prepare`."""
        return {f"{prefix}.{field}": tensor for field, tensor in self._asdict().items()}

    @property
    def bundles(self) -> Tensor:
        """(e,) the bundle of each edge."""
        sizes = self.stops.diff().long()
        return torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)

    @property
    def receivers(self) -> Tensor:
        """(e,) the entity that each edge leads to."""
        sizes = self.starts.diff().long()
        return torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)[self.bundles]

    def averaged(self) -> Edges:
        """Shares 1 / c, c the edges of one relation into one entity (Schlichtkrull et al., 2018)."""
        return self._replace(shares=1 / self.stops.diff()[self.bundles])

    def balanced(self) -> Edges:
        """Shares 1 / √(edges into the receiver · edges out of the sender)."""
        size = len(self.starts) - 1
        into = torch.bincount(self.receivers, minlength=size)[self.receivers]
        out = torch.bincount(self.senders, minlength=size)[self.senders.long()]
        return self._replace(shares=(into * out).float().rsqrt())

    def passed(self, composition: Composition, x: Tensor, z: Tensor) -> Tensor:
        """The messages that each entity receives, added up: (n, w), (m, v) to (n, u)."""
        rows, relations = composition.into(x), composition.into(z)
        if x.device.type == "cpu" and x.dtype == torch.float32:
            received: Tensor = _Passed.apply(  # type: ignore[no-untyped-call]
                composition, self, rows.contiguous(), relations.contiguous()
            )
        else:
            sent = composition.plain(
                rows[self.senders.long()], relations[self.relations.long()[self.bundles]]
            )
            nothing = sent.new_zeros(len(self.starts) - 1, sent.shape[1])
            received = nothing.index_add(0, self.receivers, self.shares.to(x)[:, None] * sent)
        return composition.back(received, x.shape[1])


class _Passed(torch.autograd.Function):
    """Kernels, as autograd sees them."""

    @staticmethod
    def forward(ctx: Any, composition: Composition, edges: Edges, x: Tensor, z: Tensor) -> Tensor:
        ctx.composition, ctx.edges = composition, edges
        ctx.save_for_backward(x, z)
        out = torch.empty(len(edges.starts) - 1, composition.plain(x[:0], z[:0]).shape[1])
        composition.forward(*_arrays(edges), x.detach().numpy(), z.detach().numpy(), out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, *at_outputs: Any) -> tuple[None, None, Tensor, Tensor]:
        x, z = ctx.saved_tensors
        at_x, at_z = torch.zeros_like(x), torch.zeros_like(z)
        at_out = at_outputs[0].contiguous().numpy()
        rows = (x.detach().numpy(), z.detach().numpy(), at_out, at_x.numpy(), at_z.numpy())
        ctx.composition.backward(*_arrays(ctx.edges), *rows)
        return None, None, at_x, at_z


def _arrays(edges: Edges) -> tuple[Bundles, Any]:
    starts, relations, stops, senders, shares = (tensor.numpy() for tensor in edges)
    return Bundles(starts, relations, stops, senders), shares


def _correlated(x: Tensor, z: Tensor) -> Tensor:
    (p, q), (u, v) = x.chunk(2, dim=-1), z.chunk(2, dim=-1)
    return torch.cat([p * u + q * v, p * v - q * u], dim=-1)


def _spectrum(rows: Tensor) -> Tensor:
    """The Fourier transform of each row, real parts first: what correlates rows multiplies there."""
    numbers = torch.fft.rfft(rows)
    return torch.cat([numbers.real, numbers.imag], dim=-1)


def _signal(spectrum: Tensor, width: int) -> Tensor:
    rows: Tensor = torch.fft.irfft(torch.complex(*spectrum.chunk(2, dim=-1)), n=width)
    return rows


def _mixed(x: Tensor, z: Tensor) -> Tensor:
    return (z[:, :, None] * x[:, None, :]).flatten(1)


SUBTRACT = Composition(messages.subtract, messages.subtract_backward, torch.sub)
MULTIPLY = Composition(messages.multiply, messages.multiply_backward, torch.mul)
CORRELATE = Composition(messages.correlate, messages.correlate_backward, _correlated, _spectrum, _signal)
MIX = Composition(messages.mix, messages.mix_backward, _mixed)
