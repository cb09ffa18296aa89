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
from fedkge.simulations.report.words import asked, bytes_of, figure, interval, protocol_of
from fedkge.simulations.runs.metadata import Metadata
from fedkge.simulations.runs.run_folder import RunFolder

__all__ = ["environment_rows", "run_page", "scores_table", "title_of", "unlike_sides"]

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
            Section(
                "Tables",
                tables=[
                    scores_table(run),
                    *_tasks(run),
                    _by_kind(run),
                    _by_ends(run),
                    _clients(run),
                    _phases(run),
                    _failures(run),
                ],
            ),
            Section("How to check it", tables=[_hashes(run), _settings(run), _speed(run), _environment(run)]),
        ],
    )


def title_of(run: RunFolder) -> str:
    parts = (run.strategy, run.experiment.text("model", "name"), run.experiment.text("data", "dataset"))
    strategy, model, dataset = (part or "?" for part in parts)
    return f"{strategy} with {model} on {dataset}"


def _notices(run: RunFolder) -> list[str]:
    return [*unprotected([run]), *unlike_sides(run), *_unfinished(run)]


def _unfinished(run: RunFolder) -> list[str]:
    if run.is_finished:
        return []
    planned = run.experiment.text("federation", "rounds") or "?"
    return [
        f"This run has not ended: it stands at round {run.last_round} of at most {planned}, and this report "
        f"tells what is there. Go on with: fedkge run --resume {run.name}"
    ]


def scores_table(run: RunFolder) -> PageTable:
    """MRR, Hits and MR over all clients, of validation and test, under every filter."""
    utility = run.summary.part("utility")
    told = utility.part("protocol")
    blocks = [(split, utility.part(split)) for split in ("valid", "test")]
    blocks += [
        (f"{split}, {part}", utility.part("apart", split, part))
        for split in ("valid", "test")
        for part in ("confidential", "unrestricted")
    ]
    rows = [(name, *_score_cells(scores)) for name, scores in blocks if scores.number("count")]
    for name in utility.part("filters").content:
        scores, protocol = utility.part("filters", name, "test"), utility.part("filters", name, "protocol")
        unlike = [protocol.text(key) for key in ("filter", "candidates") if protocol.at(key) != told.at(key)]
        if unlike and scores.number("count"):
            rows.append((", ".join(["test", *unlike]), *_score_cells(scores)))
        rows += _rows_by_ends(scores, ", ".join(["test", *unlike]))
        if scores.number("macro", "count"):
            *cells, _ = _score_cells(scores.part("macro"))
            rows.append((", ".join(["macro", *unlike]), *cells, ""))
    return PageTable("Scores over all clients", ("split", *_NAMES), rows, "lrrrrrrr", _note(run))


def _rows_by_ends(scores: Metadata, name: str) -> list[tuple[str, ...]]:
    """Transductive and inductive, where a client has entities without train triples."""
    return [
        (f"{name}, {end}", *_score_cells(scores.part("ends", end)))
        for end in ("seen", "unseen")
        if scores.number("ends", end, "count")
    ]


def _note(run: RunFolder) -> str:
    """What the scores must be read with."""
    told = protocol_of(run.summary.part("utility", "protocol"))
    if not told:
        return ""
    filters = run.summary.part("utility", "filters").content
    macro = " macro: the mean over clients of their test scores." if filters else ""
    meaning = " all: the true answers of all other clients are left out too, as only a simulation can."
    union = " union: others' entities with a shared row are candidates too."
    wider = any(block["protocol"]["candidates"] == "union" for block in filters.values())
    said = f"Ranked with {told}, where nothing else is said."
    if any(block["test"].get("ends") for block in filters.values()):
        said += " unseen: triples with an entity that no train triple of its client has; seen: all others."
    return said + macro + (meaning if "all" in filters else "") + (union if wider else "")


def _tasks(run: RunFolder) -> list[PageTable]:
    """What vertex rows of networks are good for."""
    tasks = run.summary.part("utility", "tasks")
    rows = [
        (
            task,
            metric,
            figure(tasks.number(task, "mean", metric, "value"), 3),
            interval(tasks.listed(task, "mean", metric, "interval"), 3),
        )
        for task in tasks.content
        for metric in tasks.part(task, "mean").content
    ]
    reasons = [
        f"client {client}: {reason}"
        for task in tasks.content
        for client, reason in tasks.part(task, "not possible").content.items()
    ]
    note = (
        "Means over clients. Classes: a linear SVM on rows of unit length learns from a tenth of the "
        "vertices, ten times. Links: a logistic regression on standardised Hadamard products learns from "
        "half of the held-out edges. " + " ".join(reasons)
    )
    columns = ("task", "metric", "value", "95 % interval")
    return [PageTable("Tasks on vertex rows", columns, rows, "llrr", note)] if tasks.content else []


def _parts(run: RunFolder, title: str, groups: tuple[str, ...], note: str) -> PageTable:
    """By parts of some groups, under every filter."""
    filters = run.summary.part("utility", "filters")
    blocks = {name: filters.part(name, "test") for name in filters.content}
    names = dict.fromkeys(
        (group, part) for scores in blocks.values() for group in groups for part in scores.part(group).content
    )
    rows = [
        (part, name, *_score_cells(scores.part(group, part)))
        for group, part in names
        for name, scores in blocks.items()
        if scores.number(group, part, "count")
    ]
    columns = ("part", "filter", *_NAMES)
    return PageTable(f"Test scores by {title}", columns, rows, "llrrrrrrr", note, folded=True)


def _by_kind(run: RunFolder) -> PageTable:
    note = "N-…: a tail has 1.5 heads or more on the mean; …-N: a head has as many tails (of train triples)."
    return _parts(run, "side and kind of relation", ("sides", "kinds"), note)


def _by_ends(run: RunFolder) -> PageTable:
    note = (
        "seen: both entities have train triples at their client; unseen: one has none, or both. unseen-…, "
        "counted by question: only the entity asked for has none, only the one given, or both."
    )
    return _parts(run, "seen and unseen ends", ("ends",), note)


def _clients(run: RunFolder) -> PageTable:
    utility = run.summary.part("utility")
    per_client, by_all = utility.part("per_client"), utility.part("filters", "all", "test", "clients")
    rows = [
        (
            client,
            *_score_cells(per_client.part(client, "test")),
            *([figure(by_all.number(client, "mrr", "value"), 4)] if by_all.content else []),
        )
        for client in per_client.content
    ]
    columns = ("client", *_NAMES, *(["MRR, filter all"] if by_all.content else []))
    align = "l" + "r" * (len(columns) - 1)
    return PageTable("Test scores by client", columns, rows, align, _note(run), folded=len(rows) > 12)


def unlike_sides(run: RunFolder) -> list[str]:
    """Where training corrupts other sides than evaluation ranks, that is said."""
    trained, ranked = run.experiment.text("training", "corrupt"), run.experiment.text("evaluation", "sides")
    if trained == ranked or not (trained and ranked):
        return []
    return [
        f'Training corrupts "{trained}" (training.corrupt), and ranking takes "{ranked}" (evaluation.sides).'
    ]


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
