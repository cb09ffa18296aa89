"""What text gives to clients that share no identifiers: relations and weights travel, entities do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from fedkge.datasets import load_graph, partition, write_split
from fedkge.datasets.features import described_by, find
from fedkge.datasets.inductive import inductive
from fedkge.datasets.labels import LOCAL
from fedkge.datasets.split import Split
from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.run_folder import RunFolder, RunResult
from fedkge.simulations.scoring.differences import difference
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.dkrl.described_runs import HELD_OUT, TEXTS, Reader
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["READERS", "SHARED", "BridgeCell", "bridge", "strangers"]

CLIENTS = 5
READERS: Mapping[str, Reader] = {
    "structure (TransE)": Reader("TransE"),
    "text (BLP)": Reader("BLP", "minilm"),
    "both (Fusion)": Reader("Fusion", "minilm"),
}
SHARED: Mapping[str, tuple[str, str]] = {  # strategy, what travels beside
    "nothing": ("Local", ""),
    "relations": ("FedR", ""),
    "relations and weights": ("FedR", "weights"),
}
ALONE = "nothing"
ASKED = ("known", "unseen")  # entities: all trained, or a tenth held out for the test


def strangers(dataset: str, asked: str, seed: int) -> Split:
    """Clients that got triples at random and call every entity by a name of their own."""
    graph = described_by(load_graph(dataset), [find(path) for path in TEXTS[dataset]])
    if asked == "unseen":
        graph = inductive(graph, HELD_OUT[dataset], seed)
    split = partition(graph, "random", CLIENTS, seed)
    clients = [
        replace(client, entity_labels=tuple(LOCAL + label for label in client.entity_labels))
        for client in split.clients
    ]
    return Split.of(f"{dataset} among strangers", clients, "random", seed)


@dataclass(frozen=True)
class BridgeCell:
    """One federation of clients that have no entity in common."""

    dataset: str
    asked: str
    rows: str
    shared: str
    seed: int

    @property
    def keys(self) -> dict[str, Key]:
        return asdict(self)

    def experiment(self, folder: str, scale: Scale) -> Experiment:
        strategy, beside = SHARED[self.shared]
        quick = scale == "quick"
        return Experiment().override(
            [
                f"name=bridge-{self.dataset}",
                f"seed={self.seed}",
                f'data.dataset="{folder}"',
                "data.partition=given",
                "model.dim=128",
                "model.margin=9.0",
                f"training.batch_size={64 if quick else 512}",
                f"training.negatives={64 if quick else 256}",
                "training.shared_negatives=true",
                "training.corrupt=both",
                f"training.learning_rate={0.005 if quick else 0.001}",
                "training.negatives_from=seen",
                f"training.local_epochs={3 if quick else 2}",
                "training.keep_optimizer=true",
                "evaluation.sides=both",
                "evaluation.filter=own",
                f"federation.strategy={strategy}",
                f'federation.share=["{beside}"]' if beside else "federation.share=[]",
                "federation.rounds=10",
                "federation.evaluate_every=2",
                "federation.patience=3",
                "engine.name=inline",
                *READERS[self.rows].settings,
            ]
        )

    def result(self, cache: StudyCache, scale: Scale) -> RunResult:
        folder = cache.runs / f"strangers-{self.dataset}-{self.asked}-{self.seed}"
        if not (folder / "split.json").is_file():
            write_split(folder, strangers(self.dataset, self.asked, self.seed))
        words = "-".join(["bridge", *map(str, self.keys.values())]).replace(" ", "-")
        return kept_run(cache, words, self.experiment(str(folder), scale))


@study(
    [
        Quantity("mrr", "MRR", None, "mrr_low", "mrr_high"),
        Quantity("gain", "MRR above nothing shared", None, "gain_low", "gain_high"),
        Quantity("bytes", "bytes of a run"),
    ],
    seeds={"quick": 1, "full": 1},
    notes=(
        "Triples are dealt to five clients at random; each has names of its own for all entities, so that no "
        "two clients have one in common and the union is empty. Relations have their public names. Secure "
        "aggregation and private union are on. A client ranks among its own entities, heads and tails.",
        "Known: every entity has train triples. Unseen: some entities are held out by BLP's rule, and asked "
        "for. At most 20 epochs, 30 of UMLS. Weights: the projection of texts and, of Fusion, the two "
        "weights. Texts stay with the client.",
        "The gain is paired: over the same test triples for one seed, Student's t over seeds for several.",
    ),
)
def bridge(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """What text gives to five clients that share no identifiers: relations and weights travel; FB15k-237.

    Quick: UMLS instead of FB15k-237, larger steps.
    """
    dataset = "UMLS" if scale == "quick" else "FB15k-237"
    for asked in ASKED:
        for rows, reader in READERS.items():
            if asked == "unseen" and not reader.text:
                continue  # an unseen entity has nothing but its text
            for shared in SHARED:
                if shared == "relations and weights" and not reader.text:
                    continue  # it has none
                for seed in seeds:
                    yield _measured(BridgeCell(dataset, asked, rows, shared, seed), scale)


def _measured(cell: BridgeCell, scale: Scale) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        own = RunFolder.read(cell.result(cache, scale).folder)
        row: Row = {"bytes": own.bytes_total, **_spanned("mrr", own)}
        if cell.shared != ALONE:
            alone = RunFolder.read(replace(cell, shared=ALONE).result(cache, scale).folder)
            gain = difference([alone], [own], "own")
            if gain is not None:
                row |= {"gain": gain.value, "gain_low": gain.interval[0], "gain_high": gain.interval[1]}
        return [row]

    return TableCell(
        cell.keys, measure, experiment_hash(cell.experiment(f"{cell.dataset}, {cell.asked}", scale))
    )


def _spanned(name: str, run: RunFolder) -> Row:
    mrr = run.summary.part("utility", "test", "mrr")
    low, high = mrr.listed("interval")
    return {name: mrr.number("value"), f"{name}_low": low, f"{name}_high": high}
