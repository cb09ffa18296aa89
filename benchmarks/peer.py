"""PyKEEN on the same work: the same batch size, negatives, dimension and family of loss, one thread."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import NSSALoss
from pykeen.models import RGCN, CompGCN, ComplEx, DistMult, RotatE, TransE
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory

from fedkge.client.models import Model
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.simulations.trained.pykeen_model import pykeen_model

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

COMPOSITIONS = {
    "subtract": "subtraction",
    "multiply": "multiplication",
    "circular": "circularcorrelation",
}
PEERS = {"TransE": TransE, "DistMult": DistMult, "ComplEx": ComplEx, "RotatE": RotatE}


def factory(graph: KnowledgeGraph, triples: np.ndarray, inverse: bool = False) -> CoreTriplesFactory:
    return CoreTriplesFactory(
        torch.from_numpy(triples.astype(np.int64)),
        num_entities=graph.num_entities,
        num_relations=graph.num_relations * (2 if inverse else 1),
        create_inverse_triples=inverse,
    )


def build(name: str, graph: KnowledgeGraph, dim: int):
    loss = NSSALoss(margin=10.0, adversarial_temperature=1.0)
    triples = factory(graph, graph.train)
    plain = {"regularizer": None} if name in ("DistMult", "ComplEx") else {}  # ours has none either
    return PEERS[name](triples_factory=triples, embedding_dim=dim, loss=loss, random_seed=0, **plain)


class PeerTraining:
    """Its own training loop, negative sampler and Adam, over a slice of the train triples."""

    inverse = False  # whether the model doubles the relations itself

    def __init__(self, name: str, graph: KnowledgeGraph, dim: int, batch: int, negatives: int) -> None:
        self._train(build(name, graph, dim), graph, batch, negatives)

    def _train(self, model, graph: KnowledgeGraph, batch: int, negatives: int) -> None:
        self.graph, self.batch, self.model = graph, batch, model
        self.loop = SLCWATrainingLoop(
            model=self.model,
            triples_factory=factory(graph, graph.train, self.inverse),
            optimizer=torch.optim.Adam(self.model.parameters(), lr=1e-3),
            negative_sampler="basic",
            negative_sampler_kwargs={"num_negs_per_pos": negatives},
        )

    def run(self, triples: int) -> None:
        part = factory(self.graph, self.graph.train[:triples], self.inverse)
        quiet = {"use_tqdm": False, "use_tqdm_batch": False, "pin_memory": False}
        self.loop.train(part, num_epochs=1, batch_size=self.batch, num_workers=0, **quiet)


class PeerEncoder(PeerTraining):
    """PyKEEN's R-GCN or CompGCN of as many layers, with DistMult, without dropout.

    Its CompGCN trains on every triple and its inverse, so that half as many triples make a batch. Its R-GCN
    has basis matrices for each way of an edge, ours one set for both: half as many there are as many in all.
    """

    def __init__(
        self, name: str, options: dict, graph: KnowledgeGraph, dim: int, batch: int, negatives: int
    ) -> None:
        self.inverse = name == "CompGCN"
        triples = factory(graph, graph.train, self.inverse)
        loss = NSSALoss(margin=10.0, adversarial_temperature=1.0)
        shape = {"triples_factory": triples, "embedding_dim": dim, "loss": loss, "random_seed": 0}
        if name == "R-GCN":
            model = RGCN(
                **shape,
                num_layers=options["layers"],
                edge_dropout=0.0,
                self_loop_dropout=0.0,
                decomposition="bases",
                decomposition_kwargs={"num_bases": options["bases"] // 2},
            )
        else:
            layer = {"composition": COMPOSITIONS[options["composition"]], "activation": "tanh"}
            model = CompGCN(**shape, encoder_kwargs={"num_layers": options["layers"], "layer_kwargs": layer})
        self._train(model, graph, batch, negatives)

    def run(self, triples: int) -> None:
        super().run(triples // 2 if self.inverse else triples)


def with_rows(model: Model, graph: KnowledgeGraph):
    """PyKEEN's model of the same name with our rows; its RotatE has another score, and rows of its own."""
    name = type(model).__name__
    return build(name, graph, model.settings.dim) if name == "RotatE" else pykeen_model(model, graph)


def realistic_ranks(peer, graph: KnowledgeGraph, triples: np.ndarray) -> np.ndarray:
    """(n, 2) filtered tail and head ranks."""
    evaluator = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
    evaluator.evaluate(
        model=peer,
        mapped_triples=torch.from_numpy(triples.astype(np.int64)),
        additional_filter_triples=[torch.from_numpy(graph.triples.astype(np.int64))],
        batch_size=32,
        use_tqdm=False,
    )
    return np.stack([np.concatenate(evaluator.ranks[side, "realistic"]) for side in ("tail", "head")], axis=1)
