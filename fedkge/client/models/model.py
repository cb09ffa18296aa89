"""The contract of a model: named parameters, an encoder that makes rows of them, a decoder that scores rows.

A shallow model declares the widths of its rows and a query; everything else has a default. An encoder
overrides `encode`, and where it needs them `weight_shapes` and `prepare`. A decoder that no query can write
down overrides `score` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from fedkge.client.kernels.arrays import Floats, Ids, ScoredRows
from fedkge.client.kernels.comparisons import Comparison, compare
from fedkge.client.kernels.operators import Backward, Operator, query
from fedkge.client.models.initial import generator_of, seed_key, uniform_rows
from fedkge.client.models.stage import Stage
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import ModelSettings, NoOptions, Settings, TrainingSettings, options_of

__all__ = ["Encoded", "Keys", "LinearRows", "Model", "TableSpec"]

Keys = Callable[[str], bytes]  # the name of a table or of weights to the key of its initial values
_QUERIES = ("query_tail", "query_head", "queries", "ask")


class TableSpec(NamedTuple):
    """A table has a row of this width for each label of a vocabulary."""

    vocabulary: str  # "entity" or "relation"
    width: int


class Encoded(NamedTuple):
    """The rows that are scored."""

    entities: Tensor  # (entities, w)
    relations: Tensor  # (relations, v); v = 0 where a model has no relations


class LinearRows(NamedTuple):
    """Entity rows that are a product of fixed features (entities, d) and one weight matrix (d, w)."""

    weight: str  # the name of the matrix
    features: Tensor
    normalised: bool  # whether rows have length 1 after that


class Model(ABC):
    """Named parameters, `encode` and `score`, and for the kernels a query with what it is compared by.

    Parameters are float32 torch tensors, `model["name"]`; kernels and messages see the same memory as numpy
    arrays. A query must depend on its two rows alone: weights belong into `encode`, or into the `score` of a
    model without queries.
    """

    entity_width: ClassVar[int] = 1  # entity rows are this many times dim wide; 0: there is no such table
    relation_width: ClassVar[int] = 1
    entity_table: ClassVar[str] = "entity"  # the tables that are scored where nothing is encoded
    relation_table: ClassVar[str] = "relation"
    projects: ClassVar[bool] = False  # whether candidates are mapped by the relation before comparing
    operator: ClassVar[Operator | None] = None  # what its two queries do, if kernels know it
    Options: ClassVar[type[Settings]] = NoOptions  # the schema of [model.options]
    whole_graph: ClassVar[bool] = False  # whether an edge reaches training by more than its own triple
    has_encoder: ClassVar[bool] = False  # whether `encode` is more than taking the tables
    row_wise: ClassVar[bool] = False  # whether `encode_rows` is cheaper than `encode`
    has_query: ClassVar[bool] = False  # whether it scores by a query and a comparison
    has_weights: ClassVar[bool] = False  # whether it has parameters besides its tables
    has_state: ClassVar[bool] = False  # whether training changes buffers, which then depend on whole batches

    def __init_subclass__(cls) -> None:
        """A subclass that overrides a query loses its parent's fused operator."""
        super().__init_subclass__()
        owner = next(parent for parent in cls.__mro__ if "operator" in vars(parent))
        if any(getattr(cls, name) is not getattr(owner, name) for name in _QUERIES):
            cls.operator = None
        cls.has_encoder = cls.encode is not Model.encode
        cls.row_wise = cls.encode_rows is not Model.encode_rows
        parents = [vars(kind) for kind in cls.__mro__ if kind is not Model]
        cls.has_weights = any("weight_shapes" in names for names in parents)
        cls.has_state = any("initial_buffers" in names for names in parents)
        cls.has_query = all(getattr(cls, name) is not getattr(Model, name) for name in _QUERIES[:2])

    def __init__(self, settings: ModelSettings, parameters: Mapping[str, Floats], scale: Floats) -> None:
        self.settings = settings
        self.options = self.options_of(settings)
        self.specs = self.table_specs(settings)
        self.scale = _as_kernels_read(scale)  # (relations,) a positive factor on every score
        self._tensors = {name: _as_kernels_read(array) for name, array in parameters.items()}
        self._buffers: Mapping[str, Tensor] = {}
        self._state_buffers: tuple[str, ...] = ()
        self.prepared_of: Ids | None = None  # (n, 3) the train triples that `prepare` was given
        self._rng: np.random.Generator | None = None  # of training; without one the model is in evaluation
        self._sparse = False  # whether rows that are looked up have sparse gradients

    @classmethod
    def check(cls, settings: ModelSettings, training: TrainingSettings) -> None:
        """Refuse settings that no graph could make right; called before a run starts."""
        del settings, training

    # Parameters.

    @classmethod
    def table_specs(cls, settings: ModelSettings) -> dict[str, TableSpec]:
        """The tables by name; by default one of entities and one of relations, unless its width is 0."""
        tables = {
            cls.entity_table: TableSpec("entity", cls.entity_columns(settings.dim)),
            cls.relation_table: TableSpec("relation", cls.relation_columns(settings.dim)),
        }
        return {name: spec for name, spec in tables.items() if spec.width > 0}

    @classmethod
    def weight_shapes(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays that belong to the model itself, by name."""
        del settings, graph
        return {}

    @classmethod
    def shareable_weights(cls, settings: ModelSettings, graph: KnowledgeGraph) -> list[str]:
        """The weights that clients have in common, by name."""
        own = cls.own_weights(settings, graph)
        return [name for name in cls.weight_shapes(settings, graph) if name not in own]

    @classmethod
    def own_weights(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, str]:
        """Weights that mean something to one client alone, never shared, each with why and what to do."""
        del settings, graph
        return {}

    @classmethod
    def initial_buffers(cls, settings: ModelSettings, graph: KnowledgeGraph) -> dict[str, Floats]:
        """Buffers that `encode` changes in training, such as BatchNorm's running statistics, as they start.

        They are not shared, and are kept with the parameters: in states, checkpoints and exported tables.
        """
        del settings, graph
        return {}

    def prepare(self, graph: KnowledgeGraph) -> Mapping[str, Tensor]:
        """Named buffers: what the encoder needs of the client's own graph, neither trained nor shared."""
        del graph
        return {}

    @classmethod
    def build(cls, settings: ModelSettings, graph: KnowledgeGraph, seed: int | Keys) -> Self:
        """A new model for a graph; rows depend on the key of their table and the label alone."""
        keys = seed if callable(seed) else (lambda name: seed_key(seed, name))
        parameters = {
            name: cls.initial_table(name, graph.labels[spec.vocabulary], settings, keys(name))
            for name, spec in cls.table_specs(settings).items()
        }
        for name, shape in cls.weight_shapes(settings, graph).items():
            parameters[name] = cls.initial_weights(name, shape, generator_of(keys(name)))
        return cls.restore(settings, graph, parameters)

    @classmethod
    def restore(
        cls, settings: ModelSettings, graph: KnowledgeGraph, parameters: Mapping[str, Floats]
    ) -> Self:
        """A model of saved parameters, weights possibly as rows, for the graph that they were trained on.

        State buffers that are not among them are as they start.
        """
        shapes: dict[str, tuple[int, ...]] = {
            name: (len(graph.labels[spec.vocabulary]), spec.width)
            for name, spec in cls.table_specs(settings).items()
        }
        shapes |= cls.weight_shapes(settings, graph)
        for name, shape in shapes.items():
            if name not in parameters:
                raise DataError(
                    f"no {name} among {', '.join(parameters)}; {cls.__name__} has such a parameter"
                )
            if parameters[name].shape not in (shape, _shape_of_rows(shape)):
                raise DataError(
                    f"{name} has shape {parameters[name].shape}, where {graph.name} and {cls.__name__} with "
                    f"dim = {settings.dim} have {shape}"
                )
        arrays = {name: parameters[name].reshape(shape) for name, shape in shapes.items()}
        model = cls(settings, arrays, cls.relation_scale(graph))
        state = cls.initial_buffers(settings, graph)
        model._state_buffers = tuple(state)
        kept = {name: _as_kernels_read(_restored(name, start, parameters)) for name, start in state.items()}
        model._buffers = {**model.prepare(graph), **kept}
        model.prepared_of = graph.train
        return model

    @classmethod
    def of_rows(cls, settings: ModelSettings, entities: Floats, relations: Floats) -> Self:
        """A model of which only rows are known, (n, w) and (m, v); its scores are not scaled."""
        if cls.has_encoder:
            raise SettingError(
                f"the rows that {cls.__name__} scores come out of an encoder, whose inputs were never sent"
            )
        rows = {cls.entity_table: entities, cls.relation_table: relations}
        given = {name: rows[name] for name in cls.table_specs(settings) if name in rows}
        return cls(settings, given, np.ones(len(relations), dtype=np.float32))

    @classmethod
    def decoder_of(cls, settings: ModelSettings) -> ModelSettings | None:
        """The model that scores as this one does once rows are encoded, from rows alone; None: there is none.

        By default itself, or the one that an encoder inherits its queries from.
        """
        if not cls.has_encoder:
            return None if cls.has_weights else settings
        for parent in cls.__mro__:
            if issubclass(parent, Model) and parent.has_query and not parent.has_encoder:
                dim = cls.entity_columns(settings.dim) // parent.entity_columns(1) or settings.dim
                return settings.model_copy(update={"name": parent.__name__, "dim": dim, "options": {}})
        return None

    def bind(
        self,
        tensors: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor] | None = None,
        rng: np.random.Generator | None = None,
        sparse: bool = False,
    ) -> Self:
        """The same model with other tensors as parameters: on another device, or such that have gradients.

        With a generator it is in training: dropout draws from it, and `encode` may change state buffers.

        Args:
            sparse: whether the gradients of rows that are looked up are sparse.
        """
        bound = copy(self)
        bound._tensors = dict(tensors)
        bound._buffers = self._buffers if buffers is None else buffers
        bound._rng = rng
        bound._sparse = sparse
        return bound

    def __getitem__(self, name: str) -> Tensor:
        """A table, weights or a buffer."""
        return self._tensors[name] if name in self._tensors else self._buffers[name]

    @property
    def parameters(self) -> dict[str, Floats]:
        """All that is trained, tables first, as writable numpy views."""
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The parameters as they are scored."""
        return self._tensors

    @property
    def tables(self) -> dict[str, Floats]:
        """The parameters whose rows belong to labels, each (labels, width)."""
        return {name: self._tensors[name].numpy() for name in self.specs}

    @property
    def weights(self) -> dict[str, Floats]:
        """The parameters that belong to the model itself."""
        return {name: array for name, array in self.parameters.items() if name not in self.specs}

    @property
    def rows(self) -> dict[str, Floats]:
        """Every parameter as rows (n, w) of the same memory: what optimisers move and what travels."""
        return {name: array.reshape(_shape_of_rows(array.shape)) for name, array in self.parameters.items()}

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        return self._buffers

    @property
    def state_buffers(self) -> dict[str, Floats]:
        """The buffers that training changes, as writable numpy views."""
        return {name: self._buffers[name].numpy() for name in self._state_buffers}

    # Training.

    @property
    def in_training(self) -> bool:
        return self._rng is not None

    def stages(self, training: TrainingSettings) -> tuple[Stage, ...]:
        """What local training consists of, in order; by default the model itself, trained as it is said."""
        return (Stage(self, training),)

    def dropout(self, rows: Tensor, probability: float) -> Tensor:
        """In training, zeros with this probability and the rest scaled up; otherwise the rows themselves."""
        if self._rng is None or probability == 0:
            return rows
        kept = self._rng.random(rows.shape, dtype=np.float32) >= probability
        return rows * torch.from_numpy(kept).to(rows) / (1 - probability)

    # Encoder.

    def encode(self) -> Encoded:
        """The rows that are scored; by default the two tables themselves."""
        if self.relation_table in self._tensors:
            return Encoded(self[self.entity_table], self[self.relation_table])
        return Encoded(self[self.entity_table], torch.empty(len(self.scale), 0))

    def encode_rows(self, entities: Tensor) -> Encoded:
        """The rows of some entities (k,), and of all relations.

        An encoder overrides it where an entity's row depends on nothing but that entity: a batch then encodes
        the entities that it names and no others.
        """
        rows, relations = self.encode()
        return Encoded(rows[entities], relations)

    def looked_up(self, name: str, ids: Tensor) -> Tensor:
        """Rows of a parameter, for an encoder: (...,) ids to (..., width)."""
        return embedding(ids, self[name], sparse=True) if self._sparse else self[name][ids]

    @property
    def linear_rows(self) -> LinearRows | None:
        """What entity rows are, where they are no more than that; private training is then faster."""
        return None

    @property
    def scored(self) -> ScoredRows:
        """`encode()` for kernels."""
        return ScoredRows(*(rows.detach().contiguous().numpy() for rows in self.encode()))

    @property
    def entity(self) -> Tensor:
        """The entity rows that are scored; of a model without an encoder, the table itself."""
        return self.encode().entities

    @property
    def relation(self) -> Tensor:
        """The relation rows that are scored."""
        return self.encode().relations

    def entity_vectors(self) -> Floats:
        """(entities, w) the rows that stand for entities in other tasks; by default those that are scored."""
        return self.scored.entities

    # Decoder.

    @property
    def comparison(self) -> Comparison:
        """The norm of the settings; similarity models override it."""
        return Comparison.L1 if self.settings.norm == 1 else Comparison.L2

    @property
    def shift(self) -> float:
        """What losses add to a score: distances are compared with the margin, similarities with zero."""
        if not self.has_query or self.comparison is Comparison.DOT:
            return 0.0
        return self.settings.margin

    @property
    def unit(self) -> float:
        """The angle that a relation row's 1 stands for, where it holds phases."""
        return 1.0

    @abstractmethod
    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """How true a triple of rows is, as its paper writes it; higher is truer.

        Args:
            h, r, t: (..., width) rows whose leading dimensions broadcast.
        """

    def score_head(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """The same where the head is asked for; another one only if a model asks for heads in another way."""
        return self.score(h, r, t)

    def query_tail(self, h: Tensor, r: Tensor) -> Tensor:
        """What a fitting tail looks like: (b, width), (b, width) to (b, width)."""
        raise NotImplementedError

    def query_head(self, t: Tensor, r: Tensor) -> Tensor:
        """What a fitting head looks like."""
        raise NotImplementedError

    def queries(self, h: Floats, r: Floats, num_tails: int) -> tuple[Floats, Backward]:
        """Queries of a batch, for tails first, then for heads; and their backward pass.

        Torch differentiates those that kernels do not know.
        """
        if self.operator is not None:
            return query(self.operator, self.unit, h, r, num_tails)
        rows = [torch.from_numpy(side).requires_grad_() for side in (h, r)]
        made = self.ask(rows[0], rows[1], num_tails)

        def backward(slopes: Floats) -> tuple[Floats, Floats]:
            at_h, at_r = torch.autograd.grad(made, rows, torch.from_numpy(slopes), materialize_grads=True)
            return _owned(at_h), _owned(at_r)

        return made.detach().numpy(), backward

    def ask(self, rows: Tensor, r: Tensor, num_tails: int) -> Tensor:
        """The queries of a batch in torch, for tails first, then for heads."""
        parts = []
        if num_tails > 0:
            parts.append(self.query_tail(rows[:num_tails], r[:num_tails]))
        if num_tails < len(rows):
            parts.append(self.query_head(rows[num_tails:], r[num_tails:]))
        return torch.cat(parts)

    def project(self, rows: Tensor, r: Tensor) -> Tensor:
        """Candidates as the relation sees them: (b, n, width), (b, width) to (b, n, query width)."""
        del r
        return rows

    def relation_between(self, h: Tensor, t: Tensor) -> Tensor | None:
        """The relation rows (b, v) that fit pairs of rows (b, w) best; None where a model cannot say."""
        del h, t
        return None

    def scores_of(
        self, h: Ids, r: Ids, t: Ids, encoded: Encoded | None = None, asks_tail: bool = True
    ) -> Floats:
        """The scores of triples given by row numbers, in plain torch; rows are encoded unless given."""
        entities, relations = encoded or self.encode()
        triple = (entities[_index(h)], relations[_index(r)], entities[_index(t)])
        score = self.score if asks_tail else self.score_head
        scores: Floats = (score(*triple) * self.scale[_index(r)]).detach().numpy()
        return scores

    def distance(self, query: Tensor, candidate: Tensor) -> Tensor:
        return compare(self.comparison, query, candidate)

    # Initial values.

    @classmethod
    def initial_table(cls, name: str, labels: Sequence[str], settings: ModelSettings, key: bytes) -> Floats:
        """The first rows of a table, (labels, width)."""
        return cls.spread(uniform_rows(key, labels, cls.table_specs(settings)[name].width), settings)

    @classmethod
    def initial_weights(cls, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """The first weights: zeros for vectors, otherwise as Glorot and Bengio (2010) draw them."""
        del name
        if len(shape) < 2:
            return np.zeros(shape, dtype=np.float32)
        bound = np.sqrt(6 / (shape[-2] + shape[-1]))
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    @classmethod
    def entity_columns(cls, dim: int) -> int:
        return cls.entity_width * dim

    @classmethod
    def relation_columns(cls, dim: int) -> int:
        return cls.relation_width * dim

    @classmethod
    def spread(cls, uniform: Floats, settings: ModelSettings) -> Floats:
        """Numbers in (0, 1) to ±(γ + 2) / dim, as RotatE, FedE and FedR start."""
        return (uniform * 2 - 1) * np.float32(initial_range(settings))

    @classmethod
    def relation_scale(cls, graph: KnowledgeGraph) -> Floats:
        return np.ones(graph.num_relations, dtype=np.float32)

    @classmethod
    def options_of(cls, settings: ModelSettings) -> Any:
        """The options of its own, an object of the class `Options`."""
        return options_of(settings.options, cls.Options, "model.options", cls.__name__)


def initial_range(settings: ModelSettings) -> float:
    return (settings.margin + 2) / settings.dim


def _restored(name: str, start: Floats, saved: Mapping[str, Floats]) -> Floats:
    """A state buffer as it was saved, possibly as rows, in memory of its own."""
    given = saved.get(name, start)
    if given.shape not in (start.shape, _shape_of_rows(start.shape)):
        raise DataError(f"{name} has shape {given.shape}, where the model's buffer has {start.shape}")
    return given.reshape(start.shape).astype(np.float32)  # a copy: training writes into it


def _as_kernels_read(rows: Floats) -> Tensor:
    """The same memory where it is float32, row after row."""
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))


def _shape_of_rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """An array as rows; one without a second axis is a single row."""
    return (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))


def _owned(rows: Tensor) -> Floats:
    """A writable, contiguous array; autograd may hand out a gradient that shares memory."""
    return np.array(rows.numpy(), dtype=np.float32, order="C")


def _index(ids: Ids) -> Tensor:
    return torch.from_numpy(np.asarray(ids, dtype=np.int64))
