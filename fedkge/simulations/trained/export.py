"""Trained embeddings in the formats of other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import save_file

import fedkge
from fedkge.client.kernels.arrays import Floats
from fedkge.client.training.threads import one_thread
from fedkge.datasets.formats.text import write_labels
from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.trained.client_model import Trained, load_trained, trained_clients
from fedkge.simulations.trained.pykeen_model import pykeen_model, pykeen_triples
from fedkge.simulations.trained.rdf import RdfOptions, Watch, unseen, write_rdf
from fedkge.storage import staged

__all__ = ["FORMATS", "export"]


def _write_safetensors(trained: Trained, folder: Path) -> None:
    """client-N.safetensors, and a label per row in client-N-entity.tsv and client-N-relation.tsv."""
    metadata = {key: str(value) for key, value in _about(trained).items()}
    save_file(_rows(trained) | _weights(trained), folder / f"client-{trained.client}.safetensors", metadata)
    for table, labels in _labels(trained).items():
        write_labels(folder / f"client-{trained.client}-{table}.tsv", labels)


def _write_npz(trained: Trained, folder: Path) -> None:
    """client-N.npz: arrays entity, relation, entity_labels, relation_labels."""
    arrays: dict[str, Any] = {**_rows(trained), **_weights(trained)}
    for table, labels in _labels(trained).items():
        arrays[f"{table}_labels"] = np.array(labels, dtype=str)
    np.savez_compressed(folder / f"client-{trained.client}.npz", **arrays)


def _write_tsv(trained: Trained, folder: Path) -> None:
    """client-N-entity.tsv and client-N-relation.tsv: a header, then a label and its numbers a line."""
    labels_of = _labels(trained)
    for table, rows in _rows(trained).items():
        labels, frame = labels_of[table], pd.DataFrame(rows)
        frame.insert(0, "label", list(labels))
        path = folder / f"client-{trained.client}-{table}.tsv"
        frame.to_csv(path, sep="\t", index=False, float_format="%.9g")  # nine digits are a float32 exactly


def _write_pykeen(trained: Trained, folder: Path) -> None:
    """client-N/trained_model.pkl and client-N/training_triples, as PyKEEN saves and documents them."""
    target = folder / f"client-{trained.client}"
    target.mkdir()
    torch.save(pykeen_model(trained.model, trained.graph), target / "trained_model.pkl")
    pykeen_triples(trained.graph).to_path_binary(target / "training_triples")


FORMATS: dict[str, Callable[[Trained, Path], None]] = {
    "safetensors": _write_safetensors,
    "npz": _write_npz,
    "tsv": _write_tsv,
    "pykeen": _write_pykeen,
    "rdf": write_rdf,
}


def export(
    folder: Path | str,
    format: str = "safetensors",
    client: int | None = None,
    out: Path | str | None = None,
    *,
    rdf: RdfOptions | None = None,
    watch: Watch = unseen,
) -> Path:
    """Write one client's embeddings of a finished run, or all clients', into a new folder.

    Args:
        folder: of the run.
        format: a key of FORMATS.
        client: one client; without it, all.
        out: a new folder.
        rdf: for format rdf, which also writes predictions: the base IRI, their form and number.
        watch: called as predictions are made.
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    if rdf is not None and format != "rdf":
        raise SettingError(f"format '{format}' has no options of RDF; leave them out, or take format 'rdf'")
    folder = Path(folder)
    target = Path(out) if out is not None else folder / f"export-{format}"
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target} exists already; choose another --out, or remove it")
    clients = trained_clients(folder) if client is None else [client]
    first = load_trained(folder, clients[0])
    write = FORMATS[format]
    if format == "rdf":
        options = rdf or RdfOptions()
        _check_relations(folder, clients, options.relations, first)
        write = partial(write_rdf, options=options, watch=watch, run=folder.resolve().name)
    with staged(target) as place:
        place.mkdir()
        for number in clients:
            write(first if number == clients[0] else load_trained(folder, number), place)
        about = {**_about(first), "clients": clients}
        (place / "model.json").write_text(
            json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return target


def _check_relations(folder: Path, clients: Sequence[int], asked: Sequence[str], first: Trained) -> None:
    """A relation that no client has is a mistake; one that some lack is not."""
    if not asked:
        return
    run = RunFolder.read(folder)
    known = {label for client in clients for label in run.graph(client).relation_labels}
    for label in asked:
        if label not in known:
            first.relation(label)  # says which are the nearest


def _rows(trained: Trained) -> dict[str, Floats]:
    """The rows that are scored: of a model with an encoder, what it makes of its parameters."""
    with one_thread():  # threads would divide an encoder's products otherwise
        entities, relations = trained.model.scored
    return {"entity": entities, "relation": relations} if relations.shape[1] else {"entity": entities}


def _weights(trained: Trained) -> dict[str, Floats]:
    """Those of a model whose scores need more than rows."""
    model = trained.model
    return {} if model.decoder_of(model.settings) else model.weights


def _labels(trained: Trained) -> Mapping[str, Sequence[str]]:
    return trained.graph.labels


def _about(trained: Trained) -> dict[str, Any]:
    """What one must know to compute with the rows."""
    model = trained.model
    return {
        "model": type(model).__name__,
        "score": (model.__doc__ or "").partition("\n")[0],
        "dim": model.settings.dim,
        "margin": model.settings.margin,
        "norm": model.settings.norm,
        "options": model.settings.options,
        "fedkge": fedkge.__version__,
    }
