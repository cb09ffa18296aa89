"""Embedding models by name; a new one is a class and a line in MODELS."""

from __future__ import annotations

from fedkge.client.models.bilinear import RESCAL, ComplEx, DistMult, QuatE
from fedkge.client.models.convolution import ConvKB
from fedkge.client.models.cooccurrence import NoGE
from fedkge.client.models.factorization import DeepWalkMF
from fedkge.client.models.kbgat import KBGAT
from fedkge.client.models.model import Encoded, Keys, Model, TableSpec
from fedkge.client.models.relational_convolutions import RGCN, CompGCN
from fedkge.client.models.rotations import RotatE
from fedkge.client.models.text_encoders import (
    BLP,
    BOW,
    DKRL,
    BLPComplEx,
    BLPDistMult,
    DKRLMixed,
    Fusion,
    FusionComplEx,
    FusionDistMult,
)
from fedkge.client.models.translations import TransE, TransH, TransM, TransR
from fedkge.client.models.walking import FirstOrder, SecondOrder, SkipGram
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.experiment import ModelSettings
from fedkge.plugins import Registry

__all__ = ["MODELS", "Encoded", "Keys", "Model", "TableSpec", "build_model"]

MODELS: Registry[type[Model]] = Registry(
    "model",
    "fedkge.models",
    {
        "TransE": TransE,
        "TransH": TransH,
        "TransM": TransM,
        "TransR": TransR,
        "RESCAL": RESCAL,
        "DistMult": DistMult,
        "ComplEx": ComplEx,
        "RotatE": RotatE,
        "QuatE": QuatE,
        "ConvKB": ConvKB,
        "R-GCN": RGCN,
        "CompGCN": CompGCN,
        "NoGE": NoGE,
        "KBGAT": KBGAT,
        "BLP": BLP,
        "BLP-DistMult": BLPDistMult,
        "BLP-ComplEx": BLPComplEx,
        "BOW": BOW,
        "DKRL": DKRL,
        "DKRL-Mixed": DKRLMixed,
        "Fusion": Fusion,
        "Fusion-DistMult": FusionDistMult,
        "Fusion-ComplEx": FusionComplEx,
        "DeepWalkMF": DeepWalkMF,
        "LINE-1": FirstOrder,
        "LINE-2": SecondOrder,
        "SkipGram": SkipGram,
    },
)


def build_model(settings: ModelSettings, graph: KnowledgeGraph, seed: int | Keys) -> Model:
    """The model of the settings, with rows for a graph.

    Args:
        seed: initial values come from it and from labels, so a label gets the same row everywhere; or a
            function from the name of a table or of weights to the key that its initial values come from.
    """
    return MODELS[settings.name].build(settings, graph, seed)
