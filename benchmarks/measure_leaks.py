"""What views tell of counts and of membership: UMLS and Kinships, three seeds, one table in Markdown.

python benchmarks/measure_leaks.py holdings|active|membership [--datasets UMLS] [--seeds 3] [--rounds 30]
    [--set training.learning_rate=0.001] [--out docs/results/leaks/holdings.md]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import mean

from fedkge.attacks import Finding
from fedkge.experiment import Experiment
from fedkge.simulations.runs.attacking import attack_run
from fedkge.simulations.runs.run import run
from fedkge.simulations.runs.tampered import serve_actively
from fedkge.simulations.studies.origin import Origin
from fedkge.storage import staged

DATASETS = ("UMLS", "Kinships")
PARTITIONS = ("dirichlet:alpha=0.5", "random")
SUMS = {"open": ["privacy.union=plain", "privacy.secure_aggregation=false"], "secure": []}
COMMON = [
    "engine.name=inline",
    "data.clients=5",
    "model.name=TransE",
    "model.dim=32",
    "training.local_epochs=1",
    "training.negatives=16",
    "training.learning_rate=0.01",
]
COLUMNS = ("data", "partition", "strategy", "sums", "adversary", "about", "guess from")
ROUNDS = {"holdings": 10, "membership": 30, "active": 30}
SUBSET = "entity-seen without it"


def table(
    kind: str, datasets: Sequence[str], seeds: int, rounds: int, changes: Sequence[str] = ()
) -> Iterator[str]:
    """The lines of the table, as they are measured."""
    strategies = ("FedE",) if kind == "active" else ("FedR", "FedE")
    yield f"| {' | '.join((*COLUMNS, f'value ({seeds} seeds)', 'guessing', 'above guessing'))} |"
    yield "|" + "---|" * (len(COLUMNS) + 3)
    length = [f"federation.rounds={rounds}", f"federation.evaluate_every={rounds}"]
    for data, partition, strategy, sums in product(datasets, PARTITIONS, strategies, SUMS):
        place = [f"data.dataset={data}", f"data.partition={partition}", f"federation.strategy={strategy}"]
        experiment = Experiment().override([*COMMON, *length, *changes, *place, *SUMS[sums]])
        findings = [finding for seed in range(seeds) for finding in _measured(kind, experiment, seed)]
        print(f"{data} {partition} {strategy} {sums}", file=sys.stderr)
        for cells in _rows(findings):
            yield f"| {' | '.join((data, partition.split(':')[0], strategy, sums, *cells))} |"


def page(kind: str, origin: Origin, rows: str) -> str:
    """The file that keeps a table: where it comes from, for readers and for tests, and its lines."""
    machine = ", ".join(f"{name}: {value}" for name, value in sorted((origin.machine or {}).items()))
    versions = {
        "fedkge": origin.fedkge,
        "Python": origin.python,
        **dict(sorted((origin.packages or {}).items())),
    }
    known = [f"{name} {version}" for name, version in versions.items() if version]
    made_with = ", ".join([f"{origin.day}, code of commit {origin.place}", *known])
    kept = {"digest": digest(rows), "kind": kind, "origin": origin.to_json()}
    return (
        f"# What views tell: {kind}\n\n`{origin.command}`\n\n"
        f"{made_with}{machine and '; '}{machine}. Nothing here is edited by hand.\n\n"
        f"<!-- {json.dumps(kept, sort_keys=True)} -->\n\n{rows}"
    )


def digest(rows: str) -> str:
    return hashlib.sha256(rows.encode()).hexdigest()


def command_of(arguments: Sequence[str]) -> str:
    """As it was typed in the root of the repository."""
    return shlex.join(["python", "benchmarks/measure_leaks.py", *arguments])


def _measured(kind: str, experiment: Experiment, seed: int) -> list[Finding]:
    experiment = experiment.override([f"seed={seed}"])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        if kind == "active":
            findings = serve_actively(experiment, folder, [0])
        else:
            run(experiment.override(["adversary.record=every"]), folder)
            findings = attack_run(folder, [kind], ["rigorous"], [0])
    return [finding for finding in findings if _is_shown(kind, finding)]


def _is_shown(kind: str, finding: Finding) -> bool:
    """The first figure of each attack, by the server and whoever helps it; not what nobody sends."""
    if finding.granted or not finding.adversary.startswith("server"):
        return False
    if kind == "holdings":
        return finding.metric == "count Spearman" and "guess" not in finding.regime
    regime = finding.regime
    return finding.metric == "auc" and (not finding.possible or regime.endswith(SUBSET))


def _rows(findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        regime = finding.regime.removesuffix(f", {SUBSET}")
        together = "all clients" if regime.endswith("pseudonym") else "all others"
        about = together if finding.target is None else "each client"
        groups.setdefault((f"{finding.adversary}, {finding.view}", about, regime), []).append(finding)
    for group, members in groups.items():
        values = [finding.value for finding in members if finding.value is not None]
        if not values:
            yield (*group, "not possible", "", "")
            continue
        guessing = mean(finding.baseline or 0.0 for finding in members if finding.possible)
        above = sum(finding.excess > 0 for finding in members if finding.possible)
        yield (
            *group,
            f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})",
            f"{guessing:.2f}",
            f"{above} of {len(values)}",
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=ROUNDS)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="default: 10 for holdings, 30 for the others")
    parser.add_argument("--set", dest="changes", nargs="+", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", type=Path, help="a file to write the table to, with where it comes from")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    begun = Origin.here(None, command_of(sys.argv[1:]), None)
    lines = []
    for line in table(
        given.kind, given.datasets, given.seeds, given.rounds or ROUNDS[given.kind], given.changes
    ):
        print(line, flush=True)
        lines.append(line + "\n")
    if given.out:
        with staged(given.out) as partial:
            partial.write_text(page(given.kind, begun, "".join(lines)), encoding="utf-8")
