"""Embeddings in other formats hold the same rows and labels, and PyKEEN's models give the same scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pykeen.triples import TriplesFactory
from safetensors import safe_open
from safetensors.numpy import load_file
from typer.testing import CliRunner

from fedkge.client.models import MODELS
from fedkge.datasets.formats.container import members
from fedkge.datasets.formats.text import read_labels
from fedkge.errors import InputError, UnknownNameError
from fedkge.simulations.cli.main import app
from fedkge.simulations.trained import export as exporting
from fedkge.simulations.trained.client_model import Trained
from fedkge.simulations.trained.export import export
from fedkge.simulations.trained.pykeen_model import PEERS, pykeen_model
from tests.simulations import finished
from tests.simulations.finished import write_run


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trained]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, write_run(folder, "RotatE")


def test_safetensors_with_labels(clients: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, trained = clients
    export(folder, "safetensors", out=tmp_path / "x")
    for each in trained:
        name = f"client-{each.client}"
        with safe_open(tmp_path / "x" / f"{name}.safetensors", framework="numpy") as file:
            assert file.metadata()["model"] == "RotatE"
            for table, rows in each.model.tables.items():
                np.testing.assert_array_equal(file.get_tensor(table), rows)
        (labels,) = members(tmp_path / "x" / f"{name}-entity.tsv")
        assert tuple(read_labels(labels)) == each.graph.entity_labels
    about = json.loads((tmp_path / "x" / "model.json").read_text(encoding="utf-8"))
    assert (about["dim"], about["clients"]) == (8, [0, 1, 2])


def test_encoded_rows_have_the_same_bits_with_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished, "GRAPH", "synthetic:entities=4000,relations=12,triples=12000")
    write_run(tmp_path / "run", "CompGCN")
    before, exports = torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            export(tmp_path / "run", client=0, out=tmp_path / str(threads))
            exports.append(load_file(tmp_path / str(threads) / "client-0.safetensors"))
    finally:
        torch.set_num_threads(before)
    assert set(exports[0]) == set(exports[1])
    for table, rows in exports[0].items():
        np.testing.assert_array_equal(rows, exports[1][table])


@pytest.mark.parametrize("name", ["KBGAT", "ConvKB"])
def test_what_scores_with_weights_is_exported_with_them(name: str, tmp_path: Path) -> None:
    """ConvKB's score from the exported arrays alone."""
    trained = write_run(tmp_path / "run", name)[0]
    export(tmp_path / "run", "npz", client=0, out=tmp_path / "x")
    about = json.loads((tmp_path / "x" / "model.json").read_text(encoding="utf-8"))
    assert about["options"] == trained.model.settings.options
    h, r, t = trained.graph.train[:5].T
    with np.load(tmp_path / "x" / "client-0.npz", allow_pickle=False) as arrays:
        rows = (arrays["entity"][h], arrays["relation"][r], arrays["entity"][t])
        outputs = sum(part[:, :, None] * row for part, row in zip(rows, arrays["filters"], strict=True))
        active = np.maximum(outputs + arrays["filter_bias"], 0)
        scores = (active * arrays["dense"]).sum((1, 2)) + arrays["offset"]
    np.testing.assert_allclose(scores, trained.model.scores_of(h, r, t), rtol=1e-4, atol=1e-5)


def test_npz_of_one_client(clients: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, trained = clients
    export(folder, "npz", client=1, out=tmp_path / "x")
    assert {path.name for path in (tmp_path / "x").iterdir()} == {"client-1.npz", "model.json"}
    with np.load(tmp_path / "x" / "client-1.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["relation"], trained[1].model.relation.numpy())
        assert tuple(arrays["entity_labels"]) == trained[1].graph.entity_labels


def test_tsv_keeps_every_bit(clients: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, trained = clients
    export(folder, "tsv", client=0, out=tmp_path / "x")
    for table, rows in trained[0].model.tables.items():
        frame = pd.read_csv(tmp_path / "x" / f"client-0-{table}.tsv", sep="\t", index_col="label")
        np.testing.assert_array_equal(frame.to_numpy(dtype=np.float32), rows)
        assert tuple(frame.index) == getattr(trained[0].graph, f"{table}_labels")


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", PEERS)
def test_pykeen_gives_the_same_scores(name: str, norm: int, tmp_path: Path) -> None:
    trained = write_run(tmp_path, name, norm)[0]
    peer = pykeen_model(trained.model, trained.graph).eval()
    triples = trained.graph.train
    with torch.no_grad():
        scores = peer.score_hrt(torch.from_numpy(triples.astype(np.int64)))[:, 0].numpy()
        tails = peer.score_t(torch.from_numpy(triples[:5, :2].astype(np.int64))).numpy()  # (5, entities)
    np.testing.assert_allclose(scores, trained.model.scores_of(*triples.T), rtol=1e-5, atol=1e-5)
    everything = np.arange(trained.graph.num_entities, dtype=np.int32)
    for (h, r, _), found in zip(triples[:5].tolist(), tails, strict=True):
        ours = trained.model.scores_of(np.full_like(everything, h), np.full_like(everything, r), everything)
        np.testing.assert_allclose(found, ours, rtol=1e-5, atol=1e-5)


def test_a_pykeen_folder_is_read_by_pykeen_alone(clients: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, trained = clients
    export(folder, "pykeen", client=2, out=tmp_path / "x")
    model = torch.load(tmp_path / "x" / "client-2" / "trained_model.pkl", weights_only=False)
    assert type(model).__module__.startswith("pykeen.")
    triples = TriplesFactory.from_path_binary(tmp_path / "x" / "client-2" / "training_triples")
    assert tuple(triples.entity_to_id) == trained[2].graph.entity_labels
    np.testing.assert_array_equal(triples.mapped_triples.numpy(), trained[2].graph.train)
    with torch.no_grad():
        scores = model.score_hrt(triples.mapped_triples)[:, 0].numpy()
    np.testing.assert_allclose(scores, trained[2].model.scores_of(*trained[2].graph.train.T), rtol=1e-5)


def test_a_model_that_pykeen_lacks_is_refused(tmp_path: Path) -> None:
    bare = {name for name, kind in MODELS.items() if not kind.has_encoder}
    assert bare - set(PEERS) == {"TransR", "ConvKB", "DeepWalkMF", "LINE-1", "LINE-2", "SkipGram"}
    trained = write_run(tmp_path, "TransR")[0]
    with pytest.raises(UnknownNameError, match="model that PyKEEN scores as we do 'TransR'"):
        pykeen_model(trained.model, trained.graph)


def test_nothing_is_overwritten_or_left_half_done(
    clients: tuple[Path, list[Trained]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = clients
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="exists already"):
        export(folder, "tsv", out=tmp_path / "mine")
    with pytest.raises(UnknownNameError, match=r"unknown format 'tvs'.*Did you mean 'tsv'"):
        export(folder, "tvs", out=tmp_path / "x")

    def broken(trained: Trained, place: Path) -> None:
        (place / "some").write_text("half")
        raise RuntimeError

    monkeypatch.setitem(exporting.FORMATS, "npz", broken)
    with pytest.raises(RuntimeError):
        export(folder, "npz", out=tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_command_says_where(tmp_path: Path) -> None:
    write_run(tmp_path, "TransE")
    done = CliRunner().invoke(app, ["export", str(tmp_path), "--format", "npz", "--client", "0"])
    assert done.exit_code == 0, done.output
    assert "export-npz" in done.stdout
    assert (tmp_path / "export-npz" / "client-0.npz").is_file()
