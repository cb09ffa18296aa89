"""Predictions and embeddings as RDF: a triple store reads them back and answers SPARQL over them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import BlankNode, NamedNode
from typer.testing import CliRunner

from fedkge.client.models import build_model
from fedkge.datasets import KnowledgeGraph
from fedkge.datasets.labels import is_local
from fedkge.errors import DataError, InputError, SettingError, UnknownNameError
from fedkge.experiment import ModelSettings
from fedkge.simulations.cli.main import app
from fedkge.simulations.trained.client_model import Trained
from fedkge.simulations.trained.export import export
from fedkge.simulations.trained.rdf import VOCABULARY, RdfOptions, write_rdf
from fedkge.simulations.trained.rdf_terms import BASE, Terms, is_iri
from tests.simulations.finished import write_run

PREFIXES = f"""
PREFIX f: <{VOCABULARY}> PREFIX prov: <http://www.w3.org/ns/prov#>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
"""
PREDICTED = {
    "star": "?node rdf:reifies <<( ?h ?r ?t )>> ; f:score ?score ; f:rank ?rank .",
    "reified": "?node rdf:subject ?h ; rdf:predicate ?r ; rdf:object ?t ; f:score ?score ; f:rank ?rank .",
}
LABELS = (
    "http://a.example/Ada",
    "<http://a.example/Bob>",
    "_:b0",
    "GO:0006915",
    'caffè "x"/y',
    "urn:isbn:1",
    "5",
)
RELATIONS = ("http://a.example/knows", "is part of", "_:own")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trained]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, write_run(folder, "TransE")


def trained_on(entities: tuple[str, ...] = LABELS, relations: tuple[str, ...] = RELATIONS) -> Trained:
    rng = np.random.default_rng(0)
    triples = np.unique(
        np.column_stack(
            [rng.integers(0, len(entities), 9), np.arange(9) % len(relations), np.arange(9) % len(entities)]
        ),
        axis=0,
    )
    graph = KnowledgeGraph.from_ids("g", entities, relations, {"train": triples})
    return Trained(0, graph, build_model(ModelSettings(name="TransE", dim=4), graph, seed=1))


def store_of(*paths: Path) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    for path in paths:
        store.load(path=path)
    return store


def asked(store: pyoxigraph.Store, query: str) -> list[pyoxigraph.QuerySolution]:
    found = store.query(PREFIXES + query)
    assert isinstance(found, pyoxigraph.QuerySolutions)
    return list(found)


@pytest.mark.parametrize(("form", "suffix"), [("star", "ttl"), ("reified", "nt")])
def test_sparql_finds_the_best_new_tails_with_their_scores(
    form: str, suffix: str, run: tuple[Path, list[Trained]], tmp_path: Path
) -> None:
    """Against scores and ranks worked out here from the models, question by question."""
    folder, clients = run
    out = export(folder, "rdf", out=tmp_path / "x", rdf=RdfOptions(statements=form, top=2))
    for client in clients:
        graph, terms = client.graph, Terms(BASE, client.client)
        store = store_of(out / f"client-{client.client}.{suffix}")
        rows = asked(store, f"SELECT ?h ?r ?t ?score ?rank WHERE {{ {PREDICTED[form]} }}")
        found = {
            (terms.label_of(row["h"]), terms.label_of(row["r"]), int(row["rank"].value)): (
                terms.label_of(row["t"]),
                float(row["score"].value),
            )
            for row in rows
        }
        stated = set(map(tuple, graph.triples.tolist()))
        everything = np.arange(graph.num_entities, dtype=np.int32)
        expected = {}
        for h, r in {(h, r) for h, r, _ in graph.train.tolist()}:
            scores = client.model.scores_of(
                np.full_like(everything, h), np.full_like(everything, r), everything
            )
            new = sorted((-float(scores[t]), t) for t in everything.tolist() if (h, r, t) not in stated)
            for rank, (minus, t) in enumerate(new[:2], start=1):
                labels = graph.entity_labels[h], graph.relation_labels[r]
                expected[(*labels, rank)] = graph.entity_labels[t], -minus
        assert found.keys() == expected.keys()
        for key, (tail, score) in expected.items():
            assert found[key][1] == pytest.approx(score, rel=1e-6)
            assert found[key][0] == tail


def test_predictions_are_not_asserted(run: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, clients = run
    for form, suffix in (("star", "ttl"), ("reified", "nt")):
        out = export(folder, "rdf", client=0, out=tmp_path / form, rdf=RdfOptions(statements=form))
        store = store_of(out / f"client-0.{suffix}")
        for label in clients[0].graph.relation_labels:
            relation = Terms(BASE, 0).relation(label)
            assert not list(store.quads_for_pattern(None, relation, None))


def test_embeddings_keep_every_bit(run: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, clients = run
    out = export(folder, "rdf", client=1, out=tmp_path / "x", rdf=RdfOptions(top=0))
    store = store_of(out / "client-1.ttl")
    rows = asked(store, "SELECT ?term ?value WHERE { ?e a f:Embedding ; f:of ?term ; f:value ?value }")
    terms = Terms(BASE, 1)
    found = {
        terms.label_of(row["term"]): np.array(row["value"].value[1:-1].split(","), dtype=np.float32)
        for row in rows
    }
    assert {row["value"].datatype.value for row in rows} == {f"{VOCABULARY}vector"}
    graph, tables = clients[1].graph, clients[1].model.tables
    assert len(found) == graph.num_entities + graph.num_relations
    for kind, labels in graph.labels.items():
        for label, row in zip(labels, tables[kind], strict=True):
            np.testing.assert_array_equal(found[label], row)
    assert not asked(store, f"SELECT ?node WHERE {{ {PREDICTED['star']} }}")


def test_provenance_leads_from_a_prediction_to_the_clients_triples(
    run: tuple[Path, list[Trained]], tmp_path: Path
) -> None:
    folder, clients = run
    out = export(folder, "rdf", out=tmp_path / "x", rdf=RdfOptions(top=1))
    store = store_of(*sorted(out.glob("*.ttl")))
    query = (
        "SELECT ?client ?train (COUNT(?node) AS ?count) WHERE { ?node a f:Prediction ; "
        "prov:wasDerivedFrom ?model . ?model f:client ?client ; prov:wasGeneratedBy ?activity . "
        "?activity a prov:Activity ; prov:used ?data ; prov:wasAssociatedWith ?agent . "
        "?data f:train ?train . ?agent a prov:SoftwareAgent } GROUP BY ?client ?train"
    )
    rows = {
        int(row["client"].value): (int(row["train"].value), int(row["count"].value))
        for row in asked(store, query)
    }
    questions = [{(h, r) for h, r, _ in client.graph.train.tolist()} for client in clients]
    assert rows == {
        client.client: (len(client.graph.train), len(pairs))
        for client, pairs in zip(clients, questions, strict=True)
    }


@pytest.mark.parametrize("form", ["star", "reified"])
def test_iris_stay_and_all_else_is_minted(form: str, tmp_path: Path) -> None:
    write_rdf(trained_on(), tmp_path, RdfOptions(base="https://kg.example/x#", statements=form, top=7))
    (path,) = tmp_path.iterdir()
    store = store_of(path)
    terms = {row["term"] for row in asked(store, "SELECT ?term WHERE { ?e f:of ?term }")}
    named = {term.value for term in terms if isinstance(term, NamedNode)}
    assert {"http://a.example/Ada", "http://a.example/Bob", "urn:isbn:1", "http://a.example/knows"} <= named
    assert "https://kg.example/x#entity/GO%3A0006915" in named
    assert "https://kg.example/x#entity/caff%C3%A8%20%22x%22%2Fy" in named
    assert "https://kg.example/x#relation/is%20part%20of" in named
    assert "https://kg.example/x#client-0/relation/_%3Aown" in named
    assert sum(isinstance(term, BlankNode) for term in terms) == 1
    labels = {
        row["label"].value
        for row in asked(store, "SELECT ?label WHERE { ?e f:of ?t . ?t rdfs:label ?label }")
    }
    assert labels == {"_:b0", "GO:0006915", 'caffè "x"/y', "5", "is part of", "_:own"}
    heads = {row["h"] for row in asked(store, f"SELECT ?h WHERE {{ {PREDICTED[form]} }}")}
    assert heads <= terms


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_label_has_a_term_that_a_store_reads_and_that_gives_it_back(label: str) -> None:
    terms = Terms(BASE, 3)
    for term in (terms.entity(label), terms.relation(label)):
        line = f"{term} <http://p.example/> <http://o.example/> ." if isinstance(term, NamedNode) else None
        if line is None:
            assert is_local(label)
            continue
        (quad,) = pyoxigraph.parse(line, format=pyoxigraph.RdfFormat.N_TRIPLES)
        assert quad.subject == term
        assert terms.label_of(term) in (label, label[1:-1])


def test_what_is_an_iri() -> None:
    iris = ("http://a", "https://a/é", "urn:x:y", "mailto:a@b.example", "ftp://a/b%20c", "file:///tmp/x")
    others = (
        "GO:0006915",
        "a",
        "",
        "/m/027rn",
        "http://a b",
        "http://a<b",
        "urn:",
        "http://a%zz",
        "stock:芯 片",
        "://a",
    )
    assert all(map(is_iri, iris))
    assert not any(map(is_iri, others))


def test_blank_nodes_of_two_clients_stay_two(tmp_path: Path) -> None:
    for client in (0, 1):
        write_rdf(replace(trained_on(), client=client), tmp_path, RdfOptions(top=0))
    store = store_of(tmp_path / "client-0.ttl", tmp_path / "client-1.ttl")
    terms = {
        row["term"] for row in asked(store, "SELECT ?term WHERE { ?e f:of ?term FILTER(isBlank(?term)) }")
    }
    assert len(terms) == 2


def test_only_the_relations_asked_for(run: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, clients = run
    label = clients[0].graph.relation_labels[0]
    out = export(folder, "rdf", out=tmp_path / "x", rdf=RdfOptions(relations=(label,)))
    store = store_of(*sorted(out.glob("*.ttl")))
    relations = {row["r"] for row in asked(store, f"SELECT ?r WHERE {{ {PREDICTED['star']} }}")}
    assert relations == {Terms(BASE, 0).relation(label)}
    with pytest.raises(InputError, match=r"unknown relation of client 0: 'nothing'; the nearest"):
        export(folder, "rdf", out=tmp_path / "y", rdf=RdfOptions(relations=("nothing",)))
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("base", ["", "kg/", "http://kg.example", "http://kg example/", "GO:"])
def test_a_base_that_is_no_iri_is_refused(base: str) -> None:
    with pytest.raises(SettingError, match="expected an absolute IRI that ends with"):
        RdfOptions(base=base)


def test_bad_options_name_the_remedy() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'reified'"):
        RdfOptions(statements="reify")
    with pytest.raises(SettingError, match="expected 0"):
        RdfOptions(top=-1)


def test_what_rdf_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label 'a\\ud800' .* rename it"):
        Terms(BASE, 0).entity("a\ud800")
    broken = trained_on()
    broken.model.tables["entity"][3] = np.nan
    with pytest.raises(DataError, match="row of entity 'GO:0006915' is not finite"):
        write_rdf(broken, tmp_path, RdfOptions(top=0))


def test_the_command_tells_how_far_it_is_and_where(run: tuple[Path, list[Trained]], tmp_path: Path) -> None:
    folder, clients = run
    steps: list[tuple[int, int]] = []
    export(
        folder, "rdf", client=0, out=tmp_path / "x", watch=lambda done, total, _: steps.append((done, total))
    )
    questions = len({(h, r) for h, r, _ in clients[0].graph.train.tolist()})
    assert steps == [(done, questions) for done in range(questions + 1)]
    command = [
        "export",
        str(folder),
        "--format",
        "rdf",
        "--statements",
        "reified",
        "--out",
        str(tmp_path / "y"),
    ]
    done = CliRunner().invoke(app, [*command, "--base", "https://kg.example/", "--top", "1", "--client", "0"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "y" / "client-0.nt").read_text(encoding="utf-8").count(
        "<https://kg.example/entity/"
    ) > 10
    refused = CliRunner().invoke(app, ["export", str(folder), "--format", "npz", "--top", "1"])
    assert refused.exit_code != 0
    assert isinstance(refused.exception, SettingError)
