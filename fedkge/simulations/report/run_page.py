"""The report of one run."""

from __future__ import annotations

from collections import Counter

from fedkge.simulations.report.answers import answers
from fedkge.simulations.report.charts.curves import charts
from fedkge.simulations.report.page import Page, PageTable, Section
from fedkge.simulations.report.privacy_section import (
    budget_section,
    leakage_section,
    learned_section,
    unprotected,
)
from fedkge.simulations.report.words import asked, bytes_of, figure, interval
from fedkge.simulations.runs.metadata import Metadata
from fedkge.simulations.runs.run_folder import RunFolder

__all__ = ["environment_rows", "run_page", "scores_table", "title_of"]

_SCORES = ("mrr", "hits@1", "hits@3", "hits@10", "mr")
_NAMES = ("MRR", "95 % interval", "Hits@1", "Hits@3", "Hits@10", "MR", "triples")
_SPEEDS = {
    "train_triples_per_s": ("trained triples per second and core", 0),
    "eval_triples_per_s": ("ranked triples per second and core", 0),
    "seconds_training": ("seconds of training, all clients", 2),
    "seconds_ranking": ("seconds of ranking, all clients", 2),
    "seconds_crypto": ("seconds of cryptography, all parties", 2),
    "seconds_engine": ("seconds of the engine", 2),
    "seconds_setup": ("seconds until every client had joined", 2),
    "seconds_total": ("seconds in all", 2),
    "peak_rss_mb": ("greatest memory of a worker in MB", 0),
}


def run_page(run: RunFolder) -> Page:
    return Page(
        title_of(run),
        asked(run.experiment),
        _notices(run),
        answers(run),
        [
            learned_section(run),
            Section("How it went", figures=charts(run)),
            leakage_section(run),
            budget_section(run),
            Section("Tables", tables=[scores_table(run), _clients(run), _phases(run), _failures(run)]),
            Section("How to check it", tables=[_hashes(run), _settings(run), _speed(run), _environment(run)]),
        ],
    )


def title_of(run: RunFolder) -> str:
    parts = (run.strategy, run.experiment.text("model", "name"), run.experiment.text("data", "dataset"))
    strategy, model, dataset = (part or "?" for part in parts)
    return f"{strategy} with {model} on {dataset}"


def _notices(run: RunFolder) -> list[str]:
    return [*unprotected([run]), *_unfinished(run)]


def _unfinished(run: RunFolder) -> list[str]:
    if run.is_finished:
        return []
    planned = run.experiment.text("federation", "rounds") or "?"
    return [
        f"This run has not ended: it stands at round {run.last_round} of at most {planned}, and this report "
        f"tells what is there. Go on with: fedkge run --resume {run.name}"
    ]


def scores_table(run: RunFolder) -> PageTable:
    """MRR, Hits and MR over all clients, of validation and test."""
    rows = [
        (split, *_score_cells(run.summary.part("utility", split)))
        for split in ("valid", "test")
        if run.summary.number("utility", split, "count")
    ]
    rows += [
        (f"{split}, {part}", *_score_cells(run.summary.part("utility", "apart", split, part)))
        for split in ("valid", "test")
        for part in ("confidential", "unrestricted")
        if run.summary.number("utility", "apart", split, part, "count")
    ]
    return PageTable("Scores over all clients", ("split", *_NAMES), rows, "lrrrrrrr")


def _clients(run: RunFolder) -> PageTable:
    per_client = run.summary.part("utility", "per_client")
    rows = [(client, *_score_cells(per_client.part(client, "test"))) for client in per_client.content]
    return PageTable("Test scores by client", ("client", *_NAMES), rows, "lrrrrrrr", folded=len(rows) > 12)


def _score_cells(scores: Metadata) -> list[str]:
    mrr, *others = (figure(scores.number(name, "value"), 1 if name == "mr" else 4) for name in _SCORES)
    return [mrr, interval(scores.listed("mrr", "interval"), 4), *others, figure(scores.number("count"), 0)]


def _phases(run: RunFolder) -> PageTable:
    sums: dict[str, Counter[str]] = {}
    for entry in run.ledger.entries:
        sums.setdefault(entry.phase, Counter())[entry.direction] += entry.bytes
    rows = [
        (phase, bytes_of(both["up"]), bytes_of(both["down"]), f"{both.total():,}")
        for phase, both in sums.items()
    ]
    return PageTable("Bytes by phase", ("phase", "up", "down", "bytes in all"), rows, "lrrr")


def _failures(run: RunFolder) -> PageTable:
    counts = Counter((str(row["phase"]), str(row["reason"])) for row in run.failures)
    rows = [(phase, reason, f"{count:,}") for (phase, reason), count in counts.most_common(20)]
    return PageTable("Answers that did not come", ("phase", "reason", "times"), rows, "llr")


def _hashes(run: RunFolder) -> PageTable:
    rows = [
        ("folder", run.name),
        ("started", run.environment.text("started")),
        ("experiment hash", run.summary.text("experiment_hash")),
        ("result hash", run.summary.text("result_hash")),
    ]
    return PageTable(
        "",
        ("what", "value"),
        [row for row in rows if row[1]],
        "ll",
        "Two runs have the same result, bit for bit, exactly when their result hashes agree.",
    )


def _settings(run: RunFolder) -> PageTable:
    rows = [(name, str(value)) for name, value in run.experiment.flat().items()]
    return PageTable("The experiment, every default filled in", ("setting", "value"), rows, "ll", folded=True)


def _speed(run: RunFolder) -> PageTable:
    rows = [
        (words, figure(run.summary.number("speed", name), digits))
        for name, (words, digits) in _SPEEDS.items()
        if run.summary.number("speed", name) is not None
    ]
    return PageTable("Time and memory", ("what", "value"), rows, "lr", folded=True)


def _environment(run: RunFolder) -> PageTable:
    return PageTable("Environment", ("what", "value"), environment_rows(run), "ll", folded=True)


def environment_rows(run: RunFolder) -> list[tuple[str, str]]:
    """What may be the same for other runs: when this one started is not."""
    values = {name: value for name, value in run.environment.flat().items() if name != "started"}
    return [
        (name.removeprefix("packages."), str(value)) for name, value in values.items() if value is not None
    ]
