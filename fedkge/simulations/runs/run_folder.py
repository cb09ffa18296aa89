"""The folder of a run, finished or not: the one place that knows its files and reads them.

Nothing is read before it is asked for, and importing this module is quick: reports need neither torch nor
pandas.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.attacks.findings import COLUMNS, Finding, summarised
from fedkge.errors import DataError, InputError
from fedkge.server.ledger import Entry, Ledger
from fedkge.simulations.runs.metadata import Metadata

if TYPE_CHECKING:
    import pandas as pd

    from fedkge.datasets import KnowledgeGraph
    from fedkge.experiment import Experiment

__all__ = ["ALL", "RunFolder", "RunResult", "is_run", "read_rows", "result_of", "runs_in"]

ALL = "all"  # in place of a client: all of them together

Columns = Mapping[str, Callable[[str], Any]]  # of a CSV file, and how to read their cells

_METRICS: Columns = {"round": int, "client": str, "split": str, "metric": str, "value": float}
_MESSAGES: Columns = {"round": int, "phase": str, "client": int, "direction": str, "bytes": int}
_FAILURES: Columns = {"round": int, "phase": str, "client": str, "reason": str}
_REMEDY = "restore the file, or run the experiment again"


@dataclass(frozen=True)
class RunFolder:
    """What a run left on disk; `read` checks that the folder is one of a run."""

    path: Path

    @classmethod
    def read(cls, folder: Path) -> RunFolder:
        if not folder.exists():
            raise InputError(f"{folder}: no such folder, so it is not a run folder; give the folder of a run")
        if not is_run(folder):
            raise InputError(
                f"{folder} is not a run folder (it has no experiment.toml); give the folder of a run"
            )
        return cls(folder)

    @property
    def run_name(self) -> str:
        """What its clients call the run: the folder may be moved, and the name stays."""
        name = _json(self.path / "run.json").text("run")
        if not name:
            raise DataError(f"{self.path / 'run.json'}: no name of a run; {_REMEDY}")
        return name

    @property
    def adversary(self) -> str:
        """The attack that acts in the run, "active" or "tampering"; empty where all are honest."""
        return _json(self.path / "run.json").text("adversary") or ""

    @property
    def remedy(self) -> str:
        """How to finish the run if it stopped."""
        if not self.adversary:
            return f"finish it with --resume {self.path}"
        return (
            f"'{self.adversary}' acts in it, and what goes on would be honest, so that it cannot be resumed; "
            f"run it again: fedkge attack {self.path / 'experiment.toml'} --attack {self.adversary}"
        )

    # Settings and results.

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @cached_property
    def experiment(self) -> Metadata:
        """The settings as they are written; another version's too."""
        return _toml(self.path / "experiment.toml")

    def load_experiment(self) -> Experiment:
        """The settings, checked by today's schema."""
        from fedkge.experiment import Experiment  # pydantic takes a quarter of a second

        return Experiment.load(self.path / "experiment.toml")

    @cached_property
    def environment(self) -> Metadata:
        return _json(self.path / "environment.json")

    @cached_property
    def summary(self) -> Metadata:
        """The results; empty until the run has ended."""
        return _json(self.path / "summary.json")

    @property
    def is_finished(self) -> bool:
        return bool(self.summary.content)

    @property
    def is_settled(self) -> bool:
        """Whether it ended and its clients' states are gone: there is nothing to go on with."""
        return self.is_finished and not (self.path / "clients").exists()

    @property
    def strategy(self) -> str:
        return self.experiment.text("federation", "strategy") or "?"

    @property
    def num_clients(self) -> int:
        return int(self.experiment.number("data", "clients") or 0)

    @cached_property
    def findings(self) -> list[Finding]:
        """Everything that attacks on this run found."""
        rows = read_rows(self.path / "findings.csv", COLUMNS)
        return [Finding(**row) for row in rows] or list(summarised(self.summary.part("leakage").content))

    # What each client had and has.

    def data(self, client: int) -> Path:
        """The folder of a client's triples."""
        return self.path / "data" / f"client-{client}"

    @property
    def ranks(self) -> Path:
        """The file with the ranks of single test triples, by client and filter; simulations have it."""
        return self.path / "ranks.safetensors"

    def graph(self, client: int) -> KnowledgeGraph:
        from fedkge.datasets import load_graph  # imports numpy

        return load_graph(self.data(client))

    @property
    def embeddings(self) -> dict[int, Path]:
        """The file of tables of each client that left one."""
        files = (self.path / "embeddings").glob("client-*.safetensors")
        clients = {int(file.stem.removeprefix("client-")): file for file in files}
        return dict(sorted(clients.items()))

    # What was measured and sent, by round.

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self._rows("metrics", _METRICS)

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        return self._rows("failures", _FAILURES)

    @cached_property
    def ledger(self) -> Ledger:
        ledger = Ledger()
        for row in self._rows("messages", _MESSAGES):
            ledger.add(Entry(**row))
        return ledger

    def frame(self, name: str) -> pd.DataFrame:
        """metrics, messages, failures or findings as a frame."""
        import pandas as pd  # takes long to import

        return pd.read_csv(self.path / f"{name}.csv")

    @property
    def bytes_total(self) -> int:
        return self.ledger.total()

    @cached_property
    def last_round(self) -> int:
        """How many rounds were trained."""
        rounds = [row["round"] for row in self.metrics] + [entry.round for entry in self.ledger.entries]
        return int(self.summary.number("communication", "rounds") or max(rounds, default=0))

    def curve(self, split: str, metric: str) -> dict[str, list[tuple[float, float]]]:
        """A metric over rounds, for each client and for all; of a round measured twice, the last counts."""
        curves: dict[str, dict[int, float]] = {}
        for row in self.metrics:
            if row["split"] == split and row["metric"] == metric:
                curves.setdefault(row["client"], {})[row["round"]] = row["value"]
        return {client: sorted(values.items()) for client, values in sorted(curves.items(), key=_by_number)}

    def bytes_by_round(self, direction: str | None = None) -> list[tuple[float, float]]:
        """Bytes up to and including each round; what comes before the first is round 0."""
        sums: dict[int, int] = {}
        for entry in self.ledger.entries:
            if direction in (None, entry.direction):
                sums[entry.round] = sums.get(entry.round, 0) + entry.bytes
        total, points = 0, []
        for round in sorted(sums):
            total += sums[round]
            points.append((float(round), float(total)))
        return points

    def _rows(self, name: str, columns: Columns) -> list[dict[str, Any]]:
        return read_rows(self.path / f"{name}.csv", columns, self.is_finished)


@dataclass(frozen=True)
class RunResult:
    """A finished run, for scripts and notebooks: its folder, its summary, its numbers as frames."""

    folder: Path
    summary: dict[str, Any]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        return RunFolder(self.folder).frame("metrics")

    @cached_property
    def messages(self) -> pd.DataFrame:
        return RunFolder(self.folder).frame("messages")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Means with their 95 % intervals: a row for each protocol, mean, part, split and metric.

        The first rows are what clients told: their own filter, the micro mean over all triples.
        """
        import pandas as pd  # takes long to import

        return pd.DataFrame(
            [
                {**names, "split": split, "metric": metric, "value": score["value"], "low": low, "high": high}
                for names, split, scores in _scores(self.summary["utility"])
                for metric, score in scores.items()
                if isinstance(score, dict) and "interval" in score
                for low, high in [score["interval"]]
            ],
            columns=["filter", "candidates", "mean", "part", "split", "metric", "value", "low", "high"],
        )

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False)
        return html

    def test(self, metric: str = "mrr", filter: str = "own") -> float:
        """The micro mean over all clients' test triples; `all` filters by the answers of all clients."""
        utility = self.summary["utility"]
        scores = utility if filter == "own" else utility["filters"][filter]
        return float(scores["test"][metric]["value"])


def _scores(utility: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], str, Mapping[str, Any]]]:
    """Protocol, mean and part of every block of scores, its split, and the scores."""

    def named(protocol: Mapping[str, str], mean: str, part: str = ALL) -> dict[str, str]:
        return {
            "filter": protocol["filter"],
            "candidates": protocol["candidates"],
            "mean": mean,
            "part": part,
        }

    splits = ("valid", "test")
    told = utility.get("protocol", {"filter": "own", "candidates": "own"})
    for split in splits:
        yield named(told, "micro"), split, utility[split]
    for block in utility.get("filters", {}).values():
        protocol = block["protocol"]
        for split in splits:
            scores = block[split]
            if protocol != told:
                yield named(protocol, "micro"), split, scores
            yield named(protocol, "macro"), split, scores["macro"]
            for part, values in {**scores["sides"], **scores["kinds"]}.items():
                yield named(protocol, "micro", part), split, values
            for part, values in scores.get("ends", {}).items():
                yield named(protocol, "micro", f"ends {part}"), split, values


def result_of(folder: Path) -> RunResult:
    """A run that ended earlier."""
    run = RunFolder.read(folder)
    if not run.is_finished:
        raise InputError(f"{folder}: no finished run (it has no summary.json); {run.remedy}")
    return RunResult(folder, dict(run.summary.content))


def is_run(folder: Path) -> bool:
    return (folder / "experiment.toml").is_file()


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs directly in it, strategies as they were compared."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of a run or a comparison")
    places = {name: place for place, name in enumerate(_compared(folder))}
    runs = [folder] if is_run(folder) else sorted(filter(is_run, folder.iterdir()))
    runs.sort(key=lambda run: places.get(run.name.rpartition("-seed")[0], len(places)))
    if not runs:
        raise InputError(
            f"{folder}: no run in it (no experiment.toml); give the folder of a run or a comparison"
        )
    return runs


def _compared(folder: Path) -> list[str]:
    """The strategies of a comparison in their order; none where the folder is no comparison."""
    path = folder / "comparison.json"
    try:
        return [str(row["strategy"]) for row in json.loads(_text(path))] if path.exists() else []
    except (ValueError, TypeError, KeyError):
        raise DataError(f"{path}: not what a comparison writes; {_REMEDY}") from None


def read_rows(path: Path, columns: Columns, finished: bool = True) -> list[dict[str, Any]]:
    """The rows of a CSV file, if it is there; an unfinished run may have been cut within a line."""
    if not path.exists():
        return []
    text = _text(path)
    if not finished:
        text = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
            raise DataError(f"{path}: no column '{missing[0]}'; expected {', '.join(columns)}; {_REMEDY}")
        return [_row(row, columns) for row in reader]
    except (csv.Error, ValueError) as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; {_REMEDY}") from None


def _row(row: Mapping[str | None, Any], columns: Columns) -> dict[str, Any]:
    if None in row or None in row.values():
        raise ValueError("the number of cells is not that of the columns")
    return {name: read(row[name]) for name, read in columns.items()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text; {_REMEDY}") from None


def _json(path: Path) -> Metadata:
    if not path.exists():
        return Metadata({})
    try:
        content = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON ({error}); {_REMEDY}") from None
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"{path}: expected an object with content; {_REMEDY}")
    return Metadata(content)


def _toml(path: Path) -> Metadata:
    try:
        return Metadata(tomllib.loads(_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML ({error}); mend that line") from None


def _by_number(item: tuple[str, Any]) -> tuple[int, str]:
    return (int(item[0]), "") if item[0].isdecimal() else (-1, item[0])
