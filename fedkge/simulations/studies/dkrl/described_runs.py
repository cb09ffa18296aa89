"""One model over descriptions, trained on a whole graph: what it reads, how it is trained, what it scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedkge.experiment import Experiment
from fedkge.server.summary import experiment_hash
from fedkge.simulations.runs.run_folder import RunResult
from fedkge.simulations.studies.cells import Key, Row, StudyCache
from fedkge.simulations.studies.kept_runs import kept_run
from fedkge.simulations.studies.published import Published
from fedkge.simulations.studies.scale import Scale

__all__ = ["HELD_OUT", "METRICS", "NUMBERS", "TEXTS", "DescribedRun", "Reader", "scored"]

NUMBERS = Published.beside(__file__)
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
TEXTS = {
    "FB15k-237": ("FB15k-237-entity2wikidata.json", "text/FB15k_mid2name.txt"),
    "WN18RR": ("text/WN18RR-entity2text.txt",),
    "UMLS": ("text/UMLS-entity2textlong.txt", "text/UMLS-entity2text.txt"),
}
HELD_OUT = {  # shares of entities, by BLP's rule; UMLS has few that may go
    "FB15k-237": "0.1,0.1",
    "WN18RR": "0.1,0.1",
    "UMLS": "0.03,0.03",
}

_EPOCHS = {"FB15k-237": 20, "WN18RR": 40, "UMLS": 20}  # WN18RR has a third of the triples
_EPOCHS_OF_ROUND = {"quick": 5, "full": 2}


@dataclass(frozen=True)
class Reader:
    """A model and what it reads, as options of an experiment."""

    model: str
    text: str = ""
    options: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        text = (f'model.options.text="{self.text}"',) if self.text else ()
        return (f"model.name={self.model}", *text, *self.options)


@dataclass(frozen=True)
class DescribedRun:
    """A whole graph, its entities held out or not, and a reader of their descriptions."""

    dataset: str
    reader: Reader
    unseen: bool  # whether entities are held out, and asked for
    scale: Scale
    seed: int

    @property
    def experiment(self) -> Experiment:
        """Chosen on validation triples of FB15k-237 and WN18RR with seed 0; equal for all readers."""
        quick = self.scale == "quick"
        epochs = _EPOCHS_OF_ROUND[self.scale]
        texts = ", ".join(f'"{path}"' for path in TEXTS[self.dataset])
        held_out = (f"data.inductive={HELD_OUT[self.dataset]}",) if self.unseen else ()
        return Experiment().override(
            [
                f"name=described-{self.dataset}",
                f"seed={self.seed}",
                f"data.dataset={self.dataset}",
                f"data.features=[{texts}]",
                *held_out,
                "data.clients=1",
                "data.partition=random",
                "model.dim=128",
                "model.margin=9.0",
                f"training.batch_size={64 if quick else 512}",
                f"training.negatives={64 if quick else 256}",
                "training.shared_negatives=true",
                "training.negatives_from=seen",
                "training.corrupt=both",
                "training.keep_optimizer=true",
                f"training.local_epochs={epochs}",
                "evaluation.sides=both",
                "evaluation.candidates=own",  # at validation without those of the test
                "federation.strategy=Central",
                f"federation.rounds={_EPOCHS[self.dataset] // epochs}",
                "federation.evaluate_every=1",
                "federation.patience=3",
                "engine.name=inline",
                "engine.workers=1",
                *self.reader.settings,
            ]
        )

    def keys(self, row: str) -> dict[str, Key]:
        """What a cell of that row is told by."""
        return {
            "dataset": self.dataset,
            "row": row,
            "model": self.reader.model,
            "text": self.reader.text or None,
            "seed": self.seed,
        }

    @property
    def settings(self) -> str:
        """Equal for runs that give the same result."""
        return experiment_hash(self.experiment)

    def result(self, cache: StudyCache) -> RunResult:
        """The finished run, from its folder if it is there."""
        words = (self.dataset, self.reader.model, self.reader.text.replace(":", "-"), self.seed)
        return kept_run(cache, "-".join(map(str, words)), self.experiment)


def scored(result: RunResult, published: dict[str, float | None]) -> Iterator[Row]:
    """Test metrics of the best round, beside what was published of them."""
    test = result.summary["utility"]["test"]
    for metric in METRICS:
        low, high = test[metric]["interval"]
        yield {
            "metric": metric,
            "published": published.get(metric),
            "measured": test[metric]["value"],
            "low": low,
            "high": high,
        }
