"""Whether a graph encoder leaks more than a shallow model: what attacks find, and what models are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from fedkge.attacks import Finding
from fedkge.attacks.coalition import views_of
from fedkge.attacks.membership.central.halves import answers_about
from fedkge.attacks.membership.central.signals import scores
from fedkge.attacks.membership.curve import Curve
from fedkge.attacks.membership.federated.in_federation import Played, play
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.experiment import Experiment
from fedkge.seeding import draw
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.attacking import attack_run
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study
from fedkge.simulations.trained.client_model import load_trained

__all__ = ["ENCODERS", "LeakCell", "encoder_leakage"]

ENCODERS = (  # model, decoder, what travels beside entity rows
    ("DistMult", "DistMult", ""),
    ("R-GCN", "DistMult", ""),
    ("CompGCN", "DistMult", ""),
    ("TransE", "TransE", ""),
    ("R-GCN", "TransE", ""),
    ("R-GCN", "TransE", "weights"),
    ("CompGCN", "TransE", ""),
    ("NoGE", "QuatE", ""),
)
_PUT_THROUGH = "encoded by client 0"
_ASK = 17  # tells the draws of this study from the other draws of a seed
_SPECIAL: dict[str, tuple[str, ...]] = {
    "NoGE": (
        "training.type=KvsAll",
        "training.label_smoothing=0.1",
        "training.max_gradient_norm=0.5",
    ),
}


@dataclass(frozen=True)
class LeakCell:
    """One federation of five clients on UMLS, entity rows shared, uploads in the open, client 0 curious."""

    model: str
    decoder: str
    share: str
    seed: int

    @property
    def keys(self) -> dict[str, Key]:
        return {**asdict(self), "share": self.share or None}

    def experiment(self, scale: Scale) -> Experiment:
        own = [f"model.options.decoder={self.decoder}"] if self.model in ("R-GCN", "CompGCN") else []
        if self.model == "CompGCN" and self.decoder == "TransE":
            own.append("model.options.composition=subtract")
        return Experiment().override(
            [
                f"name=encoder-leakage-{self.model}",
                f"seed={self.seed}",
                "data.dataset=UMLS",
                "data.clients=5",
                f"model.name={self.model}",
                "model.dim=64",
                "training.corrupt=both",
                "training.negatives=64",
                "training.batch_size=128",
                "training.learning_rate=0.01",
                "evaluation.sides=both",
                "federation.strategy=FedE",
                f'federation.share=["{self.share}"]' if self.share else "federation.share=[]",
                f"federation.rounds={20 if scale == 'quick' else 60}",
                "federation.evaluate_every=2",
                "federation.patience=4",
                "privacy.union=plain",
                "privacy.secure_aggregation=false",
                "adversary.record=last",
                "adversary.colluders=[0]",
                "engine.name=inline",
                *own,
                *_SPECIAL.get(self.model, ()),
            ]
        )


@study(
    quantities=[Quantity("measured")],
    within=("metric",),
    seeds={"quick": 1, "full": 3},
    notes=(
        "UMLS, five clients, FedE in the open: the server sees each client's entity rows as they go into its "
        "encoder, and client 0 colludes. Input rows: as if the decoder scored them. Encoded: put through "
        "client 0's own encoder, over client 0's graph.",
        "TRR is the published attack's; AUPRC is over triples that the attacker ranks, true pairs hidden "
        "among nine decoys each. Membership is asked of triples whose parts other train triples have, the "
        "AUC is that of the best signal; own scores: the loss of each client's final model on its own train "
        "and held-out triples, for whoever gets that model. All are means over the clients attacked; "
        "uploads are those of the last round, the MRR and own scores of the best.",
        "Guessing has AUC 0.5; that of TRR is beside it as its own line.",
    ),
)
def encoder_leakage(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Utility and leakage of graph encoders beside shallow models with the same decoder; UMLS, FedE.

    Quick: 20 rounds instead of at most 60, one seed.
    """
    for seed in seeds:
        for model, decoder, share in ENCODERS:
            yield _measured(LeakCell(model, decoder, share, seed), scale)


def _measured(cell: LeakCell, scale: Scale) -> TableCell:
    experiment = cell.experiment(scale)

    def measure(cache: StudyCache) -> list[Row]:
        result = kept_run(cache, f"encoder-leakage-{cell.model}-{cell.seed}", experiment)
        recorded = RecordedRun(result.folder)
        findings = attack_run(result.folder, ["reconstruction"])
        figures = {"MRR": result.summary["utility"]["test"]["mrr"]["value"], **_reconstructed(findings)}
        figures |= _members(recorded, cell.seed)
        figures["membership AUC, own scores"] = _own_scores(recorded)
        return [{"metric": name, "measured": value} for name, value in figures.items()]

    return TableCell(cell.keys, measure, experiment_hash(experiment))


def _reconstructed(findings: Sequence[Finding]) -> dict[str, float]:
    """What the server and client 0 recover, over the other clients."""
    figures: dict[str, float] = {}
    for finding in findings:
        figure = {("TRR", ""): "TRR", ("AUPRC", "local rows, true pairs among 9 decoys, score"): "AUPRC"}
        name = figure.get((finding.metric, finding.regime))
        if name is None or not finding.view.startswith("uploads") or finding.adversary == "server":
            continue
        through = "encoded" if finding.view.endswith(_PUT_THROUGH) else "input rows"
        alike = [
            other
            for other in findings
            if (other.metric, other.regime, other.view, other.adversary)
            == (finding.metric, finding.regime, finding.view, finding.adversary)
        ]
        figures[f"{name}, {through}"] = float(np.mean([other.value for other in alike]))
        if name == "TRR":
            figures[f"TRR by guessing, {through}"] = float(np.mean([other.baseline for other in alike]))
    return figures


def _members(recorded: RecordedRun, seed: int) -> dict[str, float]:
    """The best signal's AUC by the server and client 0, the mean over the other clients."""
    figures = {}
    for view in views_of(recorded, [0], 1.0):
        if not view.name.startswith("uploads") or not view.handed:
            continue
        areas = []
        for target in view.targets:
            played = play(view, recorded.truth, target, draw(seed, _ASK, target))
            if isinstance(played, Played):
                areas.append(max(curve.auc for curve in played.curves().values()))
        through = "encoded" if view.name.endswith(_PUT_THROUGH) else "input rows"
        figures[f"membership AUC, {through}"] = float(np.mean(areas))
    return figures


def _own_scores(recorded: RecordedRun) -> float:
    """The AUC of each client's final scores, the mean over clients."""
    areas = []
    for client, graph in enumerate(recorded.truth.clients):
        members = np.unique(graph.train, axis=0)
        others = np.unique(np.concatenate([graph.valid, graph.test]), axis=0)
        known = {tuple(triple) for triple in members.tolist()}
        others = others[[tuple(triple) not in known for triple in others.tolist()]]
        asked = np.concatenate([members, others])
        answers = answers_about(graph, asked, np.arange(len(asked)) < len(members))
        certainty = scores(load_trained(recorded.folder, client).model, asked)
        areas.append(Curve.of(certainty[answers.matched], answers.member[answers.matched]).auc)
    return float(np.mean(areas))
