"""Write every measured table of the documents again, from kept cells: `make tables`.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; TABLES has its function. Tables of
docs/results are written as `fedkge reproduce` writes them, without measuring anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import isinf, isnan
from pathlib import Path
from typing import Any

import pandas as pd

from fedkge.attacks.networks.edge_game import ceiling
from fedkge.simulations.cli.display import human_bytes
from fedkge.simulations.studies.dpne.dpne_audit import draws_of
from fedkge.simulations.studies.measuring import Order
from fedkge.simulations.studies.reproduction import Reproduction
from fedkge.simulations.studies.scale import Scale, scale_named

DOCS = Path(__file__).parent
RESULTS = Path("docs/results")  # as commands say it, in the root of the repository
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADER = re.compile(
    r"^`fedkge reproduce (\S+) --scale (\S+)(?: --seeds (\d+))? --out docs/results`$", re.MULTILINE
)
CODE = re.compile(r"Today's code when this was written: `(\w+)`")

Rows = Iterable[list[str]]


@dataclass(frozen=True)
class Kept:
    """The finished cells of a recipe, and its lines by their keys."""

    reproduction: Reproduction

    @property
    def lines(self) -> pd.DataFrame:
        return self.reproduction.lines

    @property
    def frame(self) -> pd.DataFrame:
        return self.reproduction.frame

    def line(self, **keys: Any) -> Any:
        """The one line with these keys; a key that all lines share is not looked at."""
        return _only(self.lines, keys)

    def row(self, **keys: Any) -> Any:
        """The one row of a cell with these keys."""
        return _only(self.frame, keys)


def _only(frame: pd.DataFrame, keys: dict[str, Any]) -> Any:
    for name, value in keys.items():
        if name in frame:
            frame = frame[frame[name].isna() if value is None else frame[name] == value]
    if len(frame) != 1:
        raise LookupError(f"{len(frame)} lines are {keys}, and a table needs one: is a cell missing?")
    return frame.iloc[0]


@cache
def kept(name: str, scale: Scale) -> Kept:
    """As the recipe's own table has it, which says what code its cells are compared with."""
    table = DOCS / "results" / f"{name}-{scale}" / "table.md"
    return Kept(order_of(table.read_text(encoding="utf-8"), is_today=False).reproduction())


def share(value: float, digits: int = 3) -> str:
    """A number below 1 as papers print it, without its zero."""
    text = f"{value:.{digits}f}" if value == 0 or value >= 0.0005 else f"{value:.4f}"
    return text[1:] if text.startswith("0.") else text


def spanned(line: Any) -> str:
    return f"{share(line['measured'])} ({share(line['low'])}–{share(line['high'])})"


def fedr_models() -> Rows:
    yield ["model", "Local", "FedE", "FedR"]
    for model in ("TransE", "RotatE", "DistMult", "ComplEx"):
        yield [model, *_against_published(dataset="DDB14", partition="fedr-legacy", model=model)]


def fedr_graphs() -> Rows:
    yield ["graph", "Local", "FedE", "FedR"]
    for dataset in ("FB15k-237", "WN18RR"):
        yield [dataset, *_against_published(dataset=dataset, partition="fedr", model="TransE")]


def fedr_noge() -> Rows:
    """Of cells that are not measured yet it says so: a federation takes a quarter of an hour of a core."""
    yield ["clients", "Local", "FedE", "FedR"]
    finished = kept("fedr-table-2", "full").frame
    for clients in (5, 10):
        row = [str(clients)]
        for strategy in ("Local", "FedE", "FedR"):
            keys = {"dataset": "DDB14", "partition": "fedr-legacy", "model": "NoGE", "metric": "mrr"}
            keys |= {"clients": clients, "strategy": strategy}
            cells = finished[(finished[list(keys)] == list(keys.values())).all(axis=1)]
            told = [f"{spanned(cell)}; {share(cell['published'])}" for _, cell in cells.iterrows()]
            row.append(told[0] if told else "not measured")
        yield row


def noge_graphs() -> Rows:
    yield ["graph", "Local", "FedE", "FedR"]
    for dataset in ("WN18RR", "FB15k-237"):
        row = [dataset]
        for strategy in ("Local", "FedE", "FedR"):
            line = kept("fedr-noge-graphs", "full").line(dataset=dataset, strategy=strategy, metric="mrr")
            row.append(f"{spanned(line)}; {share(line['published'])}")
        yield row


def _against_published(**keys: str) -> Iterator[str]:
    for strategy in ("Local", "FedE", "FedR"):
        line = kept("fedr-table-2", "full").line(**keys, strategy=strategy, metric="mrr")
        yield f"{spanned(line)}; {share(line['published'])}"


def fedr_table_7() -> Rows:
    yield ["model", "strategy", "MRR", "Hits@1", "Hits@3", "Hits@10", "MRR, all filter"]
    for model, name in (("RotatE", "RotatE"), ("KBGAT", "KB-GAT, reduced")):
        for strategy in ("Local", "FedE", "FedR"):
            keys = {"model": model, "strategy": strategy}
            lines = [
                kept("fedr-table-7", "quick").line(**keys, metric=metric)
                for metric in ("mrr", "hits@1", "hits@3", "hits@10", "mrr, all filter")
            ]
            first, *hits, all_filter = lines
            others = (f"{share(line['measured'])}; {share(line['published'])}" for line in hits)
            published = share(first["published"])
            yield [name, strategy, f"{spanned(first)}; {published}", *others, share(all_filter["measured"])]


def noge_candidates() -> Rows:
    yield ["clients", "strategy", "own entities (fair)", "entities of all clients (paper)", "published"]
    lines = kept("fedr-noge-candidates", "full").frame
    for (clients, strategy), rows in lines.groupby(["clients", "strategy"], sort=False):
        by_metric = {row["metric"]: row for _, row in rows.iterrows()}
        cells = [
            by_metric.get(f"mrr, {name}")
            for name in ("own entities (fair)", "entities of all clients (paper)")
        ]
        printed = next(row["published"] for row in by_metric.values() if not pd.isna(row["published"]))
        told = ("–" if cell is None else spanned(cell) for cell in cells)
        yield [str(clients), strategy, *told, share(printed)]


def described(recipe: str) -> Rows:
    """Models of descriptions, as far as they are measured; with the published MRR, where there is one."""
    yield ["graph", "row", "model", "reads", "MRR", "published", "Hits@1", "Hits@3", "Hits@10"]
    keys = ["dataset", "row", "model", "text"]
    for values, rows in kept(recipe, "full").frame.groupby(keys, sort=False, dropna=False):
        by_metric = {row["metric"]: row for _, row in rows.iterrows()}
        hits = (by_metric[f"hits@{k}"] for k in (1, 3, 10))
        printed = by_metric["mrr"]["published"]
        yield [
            *("–" if pd.isna(value) else str(value) for value in values),
            spanned(by_metric["mrr"]),
            "–" if pd.isna(printed) else share(printed),
            *(share(row["measured"]) for row in hits),
        ]


def fused() -> Rows:
    cells = kept("text-fusion", "full")
    yield ["entity rows", "MRR", "Hits@1", "Hits@10", "seeds"]
    for row in cells.lines["row"].unique():
        mrr, first, tenth = (cells.line(row=row, metric=name) for name in ("mrr", "hits@1", "hits@10"))
        yield [row, spanned(mrr), share(first["measured"]), share(tenth["measured"]), str(int(mrr["seeds"]))]


def private_texts() -> Rows:
    frame = kept("dkrl-private", "full").frame
    yield ["confidential", "method", "ε", "MRR", "Hits@10"]
    for _, row in frame.iterrows():
        bound = f"{row['epsilon']:.2f}" if 0 < row["epsilon"] < 1e6 else "0" if row["epsilon"] == 0 else "∞"
        mrr = f"{share(row['mrr'])} ({share(row['mrr_low'])}–{share(row['mrr_high'])})"
        yield [f"{row['confidential']:.0%}".replace("%", " %"), row["method"], bound, mrr, share(row["hits"])]


def text_epsilon() -> Rows:
    yield ["σ", "batch divided", "printed", "ε, the paper's conversion", "ε, RDP", "ε, PRV"]
    for _, row in kept("dkrl-epsilon", "full").frame.iterrows():
        numbers = (f"{row[name]:.2f}" for name in ("published", "theirs", "rdp", "prv"))
        yield [f"{row['sigma']:g}", row["batch_divided"], *numbers]


def text_audit() -> Rows:
    yield ["mode", "triples of a step", "server", "σ", "ε", "ε is at least", "verdict"]
    frame = kept("dkrl-audit", "full").frame
    for (mode, batch, server, sigma), rows in frame.groupby(["mode", "batch", "server", "sigma"], sort=False):
        best = rows.loc[rows["at_least"].idxmax()]
        spent = f"{best['epsilon']:.2f} {best['epsilon_is']}"
        yield [f"`{mode}`", batch, server, f"{sigma:g}", spent, f"{best['at_least']:.2f}", best["verdict"]]


def fedr_table_1() -> Rows:
    yield ["FB15k-237, FedE", "ERR measured", "ERR published", "TRR measured", "TRR published"]
    for ratio in (0.3, 0.5, 1.0):
        row = [f"leak ratio {ratio:.0%}".replace("%", " %")]
        for metric, digits in (("ERR", 4), ("TRR", 3)):
            lines = [_recovered("1", "FB15k-237", "FedE", client, ratio, metric) for client in ("C2", "C3")]
            for column in ("measured", "published"):
                row.append(", ".join(f"{line[column]:.{digits}f}" for line in lines))
        yield row


def fedr_table_4() -> Rows:
    yield [
        "FedR, entity rows granted, ×10⁻⁴",
        "ERR measured",
        "ERR published",
        "TRR measured",
        "TRR published",
    ]
    for dataset, name in (("FB15k-237", "FB15k-237"), ("DDB14", "DDB14 (clean split)"), ("WN18RR", "WN18RR")):
        row = [name]
        for metric in ("ERR", "TRR"):
            lines = [_recovered("4", dataset, "FedR", client, 1.0, metric) for client in ("C2", "C3")]
            row.append(", ".join(_ten_thousandths(line) for line in lines))
            row.append(", ".join(_rounded(1e4 * line["published"]) for line in lines))
        yield row


def _recovered(table: str, dataset: str, strategy: str, client: str, ratio: float, metric: str) -> Any:
    return kept("fedr-reconstruction", "full").line(
        table=int(table), dataset=dataset, strategy=strategy, client=client, leak_ratio=ratio, metric=metric
    )


def _rounded(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _ten_thousandths(line: Any) -> str:
    value, low, high = (1e4 * line[column] for column in ("measured", "low", "high"))
    digits = 1 if value < 10 else 0
    interval = "" if pd.isna(low) else f" ({low:.{digits}f}–{high:.{digits}f})"
    return _rounded(value) + interval


def leakage() -> Rows:
    cells = kept("leakage-over-epsilon", "quick")
    yield ["σ", "ε", "test MRR", "ERR", "TRR (guessing)"]
    for sigma in (None, 0.5, 1.0, 2.0, 8.0):
        mrr, spent, err, trr = (cells.row(sigma=sigma, metric=name) for name in ("MRR", "ε", "ERR", "TRR"))
        yield [
            "none" if sigma is None else f"{sigma:g}",
            "∞" if sigma is None else f"{spent['measured']:.2f}",
            spanned(mrr),
            share(err["measured"]),
            f"{share(trr['measured'])} ({share(trr['chance'])})",
        ]


def encoder_leakage() -> Rows:
    cells = kept("encoder-leakage", "quick")
    ways = ("input rows", "encoded")
    yield [
        "model (decoder)",
        "test MRR",
        "TRR: input (guessing)",
        "TRR: encoded",
        "AUC: input",
        "AUC: encoded",
        "AUC: own",
    ]
    for model, decoder, beside in (
        cells.frame[["model", "decoder", "share"]].drop_duplicates().values.tolist()
    ):
        beside = None if pd.isna(beside) else beside
        rows = cells.frame[(cells.frame["model"] == model) & (cells.frame["decoder"] == decoder)]
        rows = rows[rows["share"].isna() if beside is None else rows["share"] == beside]
        values = rows.groupby("metric")["measured"].mean()
        trr, area = ([f"{name}, {way}" for way in ways] for name in ("TRR", "membership AUC"))
        yield [
            (f"{model} ({decoder})" if model != decoder else model) + (", weights shared" if beside else ""),
            share(values["MRR"]),
            f"{share(values[trr[0]])} ({share(values['TRR by guessing, input rows'])})",
            *(share(values[name]) if name in values else "" for name in (trr[1], *area)),
            share(values["membership AUC, own scores"]),
        ]


def trade_off() -> Rows:
    yield ["method", "mode", "MRR", "Hits@10 % (paper)", "MR (paper)", "ε"]
    frame = kept("dpkge-link-prediction", "quick").frame
    frame = frame[frame["dataset"] == "FB15k-237"].sort_values("mrr", ascending=False)
    for row in frame.to_dict("records"):
        is_private = row["mode"] != "off"
        yield [
            {"U": "U only"}.get(row["method"], row["method"]),
            row["mode"] if is_private else "",
            f"{share(row['mrr'])} ({share(row['mrr_low'])}–{share(row['mrr_high'])})",
            f"{row['hits']:.1f} ({row['published_hits']:.1f})",
            f"{row['mr']:.0f} ({row['published_mr']:.0f})",
            _epsilon(row["epsilon"]) + (f" {row['epsilon_is']}" if is_private else ""),
        ]


def _epsilon(value: float) -> str:
    return "∞" if isinf(value) else f"{value:.2f}" if value else "0"


def private_utility(dataset: str) -> Rows:
    frame = kept("privacy-utility", "full").frame
    frame = frame[frame["dataset"] == dataset]
    yield ["model, confidential", "method", "ε", "confidential triples (by seed)", "unrestricted", "all"]
    groups = frame.groupby(["model", "marking", "method", "target"], dropna=False, sort=False)
    for (model, marking, method, target), seeds in groups:
        part = {"predicates": "predicates", "random": "half at random"}[marking]
        target_epsilon = {"U": "0", "NDP": "∞"}.get(method, f"{target:g}")
        yield [f"{model}, {part}", _method(method), target_epsilon, *_by_part(seeds)]


def _method(name: str) -> str:
    first, comma, rest = name.partition(",")
    return name if name in ("U", "NDP") else f"`{first}`{comma}{rest}"


def _by_part(seeds: pd.DataFrame) -> Iterator[str]:
    scores = seeds["mrr_confidential"]
    each = f" ({', '.join(map(share, scores))})" if len(scores) > 1 else ""
    yield share(scores.mean()) + each
    for part in ("unrestricted", "all"):
        yield share(seeds[f"mrr_{part}"].mean())


def private_federation() -> Rows:
    metrics = ("MRR, unrestricted", "ERR", "TRR", "membership accuracy", "pseudonyms named")
    cells = kept("privacy-federated", "full")
    yield ["strategy, method", "ε", "MRR, confidential (by seed)", *metrics]
    for (strategy, method, target), rows in cells.frame.groupby(
        ["strategy", "method", "target"], dropna=False, sort=False
    ):
        scores = rows[rows["metric"] == "MRR, confidential"]["measured"]
        means = [rows[rows["metric"] == metric]["measured"] for metric in metrics]
        yield [
            f"{strategy}, {_method(method)}",
            {"U": "0", "NDP": "∞"}.get(method, f"{target:g}"),
            f"{share(scores.mean())} ({', '.join(map(share, scores))})",
            *("–" if values.isna().any() or values.empty else share(values.mean()) for values in means),
        ]


def federation_gain() -> Rows:
    """Local's MRR, and what strategies gain over it."""
    names = ("FedE", "FedR", "FedER")
    cells = kept("federation-gain", "full")
    yield ["graph, sides, filter", "Local", *names, "seeds"]
    measured = cells.frame[["dataset", "sides"]].drop_duplicates()
    for dataset, sides in measured.itertuples(index=False):
        for filter in ("own", "all"):
            keys = {"dataset": dataset, "sides": sides}
            local = cells.line(**keys, strategy="Local", metric=f"MRR, {filter} filter")
            gains = [
                _gain(cells.line(**keys, strategy=name, metric=f"MRR above Local, {filter} filter"))
                for name in names
            ]
            yield [
                f"{dataset}, {sides}, {filter}",
                share(local["measured"]),
                *gains,
                str(int(local["seeds"])),
            ]


def _gain(line: Any) -> str:
    values = (_signed(line[column]) for column in ("measured", "low", "high"))
    return "{} ({} to {})".format(*values)


def _signed(value: float) -> str:
    return ("−" if value < 0 else "+") + f"{abs(value):.3f}"[1:]


def three_answers() -> Rows:
    """Gains are left out where there is nothing to compare with, and leaks where nothing is sent."""
    names = {"own": "MRR, own filter", "all": "MRR, all filter"}
    cells = kept("three-answers", "full")
    yield [
        "graph, strategy",
        *(part for name in names.values() for part in (name, "above Local")),
        "bytes of a run",
        "triples recovered",
        "by guessing",
        "seeds",
    ]
    for dataset, strategy in cells.frame[["dataset", "strategy"]].drop_duplicates().itertuples(index=False):
        at = {"dataset": dataset, "strategy": strategy}
        lines = cells.lines[(cells.lines["dataset"] == dataset) & (cells.lines["strategy"] == strategy)]
        has = set(lines["metric"])
        row = [f"{dataset}, {strategy}"]
        for filter, name in names.items():
            gain = f"MRR above Local, {filter} filter"
            row += [share(cells.line(**at, metric=name)["measured"])]
            row += [_gain(cells.line(**at, metric=gain)) if gain in has else "–"]
        row.append(human_bytes(cells.line(**at, metric="bytes of a run")["measured"]))
        for metric in ("triples recovered", "triples recovered by guessing"):
            line = cells.line(**at, metric=metric) if metric in has else None
            row.append(
                "not possible"
                if line is None
                else spanned(line)
                if line["low"] > 0
                else share(line["measured"])
            )
        yield [*row, str(int(cells.line(**at, metric=names["own"])["seeds"]))]


def fede_apart() -> Rows:
    cells = kept("fedr-fede-apart", "full").frame
    yield ["negatives", "start", *cells["metric"].unique()]
    for (negatives, start), rows in cells.groupby(["negatives", "start"], sort=False):
        yield [
            negatives,
            start,
            *(share(score) for score in rows.groupby("metric", sort=False)["measured"].mean()),
        ]


ATTACKS = {
    "transfer (3)": "transfer",
    "logistic loss (5)": "loss (logistic)",
    "margin loss (6)": "loss (margin)",
}


def membership() -> Rows:
    attacks = {**ATTACKS, "correctness (7)": "correctness"}
    yield ["", *attacks]
    for dataset in ("WN18RR", "DDB14", "NELL-995", "FB15k-237"):
        for model in ("TransE", "TransH", "ComplEx", "DistMult"):
            rows = [_member(dataset, model, attack, "accuracy") for attack in attacks.values()]
            columns = ("published", "measured", "entity_seen")
            yield [f"{dataset} {model}", *(" / ".join(share(row[name]) for name in columns) for row in rows)]


def membership_of_exchanges() -> Rows:
    attacks = {**ATTACKS, "correctness (7)": "correctness", "LiRA": "LiRA", "RMIA": "RMIA"}
    cells = kept("membership-exchanges", "quick")
    finished = set(zip(cells.frame["model"], cells.frame["attack"], strict=True))
    yield ["FinKG's row / StockKG", *attacks]
    for model in ("TransE", "TransH", "ComplEx", "DistMult"):
        if any((model, attack) not in finished for attack in attacks.values()):
            continue
        rows = [cells.row(model=model, attack=attack, metric="accuracy") for attack in attacks.values()]
        columns = ("published", "measured", "entity_seen", "matched")
        yield [model, *(" / ".join(_or_none(row[name]) for name in columns) for row in rows)]


def _or_none(value: float) -> str:
    return "–" if value is None or isnan(value) else share(value)


def shadow_attacks() -> Rows:
    yield ["", "LiRA", "RMIA"]
    for model in ("TransE", "TransH", "ComplEx", "DistMult"):
        metrics = ("accuracy", "auc", "tpr@0.1%")
        yield [
            model,
            *(
                " / ".join(share(_member("DDB14", model, attack, name)["entity_seen"]) for name in metrics)
                for attack in ("LiRA", "RMIA")
            ),
        ]


def _member(dataset: str, model: str, attack: str, metric: str) -> Any:
    return kept("membership", "quick").row(dataset=dataset, model=model, attack=attack, metric=metric)


def audit() -> Rows:
    yield ["mode", "triples of a step", "σ", "ε", "ε is at least", "verdict"]
    frame = kept("dpkge-audit", "full").frame
    for (mode, batch, sigma), rows in frame.groupby(["mode", "batch", "sigma"], sort=False):
        best = rows.loc[rows["at_least"].idxmax()]
        spent = f"{best['epsilon']:.2f} {best['epsilon_is']}"
        yield [f"`{mode}`", batch, f"{sigma:g}", spent, f"{best['at_least']:.2f}", best["verdict"]]


def active_audit() -> Rows:
    frame = kept("dpkge-active-audit", "full").frame
    targets = sorted(frame["target"].unique())
    yield ["mode", "server", "canaries", *(f"ε = {target:g}" for target in targets), "verdict"]
    for (mode, server, canaries), rows in frame.groupby(["mode", "server", "canaries"], sort=False):
        most = rows.groupby("target")["at_least"].max()
        verdict = "refuted" if (rows["verdict"] == "refuted").any() else "stands"
        yield [f"`{mode}`", server, canaries, *(f"{most[target]:.2f}" for target in targets), verdict]


def private_classes() -> Rows:
    """Accuracy of vertex classification on rows of unit length by ε, the published one beside it."""
    frame = kept("dpne-table-1", "full").frame
    yield from _by_budget(frame[(frame["scaling"] == "unit rows") & (frame["metric"] == "accuracy")])


def private_links() -> Rows:
    """Accuracy of link prediction by ε: edges that the rows saw, as published, then held-out ones."""
    frame = kept("dpne-table-3", "full").frame
    frame = frame[(frame["scaling"] == "standardised") & (frame["metric"] == "accuracy")]
    yield from _by_budget(frame, ("seen", "held out"))


def _by_budget(frame: pd.DataFrame, edges: Sequence[str] = ()) -> Rows:
    """A line for each network and mechanism, a column for each ε; without noise all columns are one."""
    budgets = sorted(frame["epsilon"].dropna().unique())
    yield ["network", "mechanism", "ε is", *(f"ε = {budget:g}" for budget in budgets)]
    for (dataset, mechanism), rows in frame.groupby(["dataset", "mechanism"], sort=False):
        plain = rows["epsilon"].isna()
        cells = [_scores(rows[plain | (rows["epsilon"] == budget)], edges) for budget in budgets]
        yield [dataset, mechanism, "–" if plain.all() else rows["epsilon_is"].iloc[0], *cells]


def _scores(rows: pd.DataFrame, edges: Sequence[str]) -> str:
    """The measured score and what was published, or such of every kind of edges; a dash without any."""
    parts = [rows[rows["edges"] == kind] for kind in edges] if edges else [rows]
    told = []
    for _, row in (pair for part in parts for pair in part.iterrows()):
        printed = "" if pd.isna(row["published"]) else f" ({share(row['published'])})"
        told.append(share(row["measured"]) + printed)
    return " / ".join(told) or "–"


def edge_audit() -> Rows:
    yield [
        "mechanism",
        "the two networks",
        "ε claimed or guaranteed",
        "ε is at least",
        "draws",
        "at most shown by so many",
        "verdict",
    ]
    frame = kept("dpne-audit", "full").frame
    for (mechanism, network, claimed), rows in frame.groupby(["mechanism", "network", "claimed"], sort=False):
        best = rows.loc[rows["at_least"].idxmax()]
        draws = draws_of(mechanism, "full")
        yield [
            mechanism.replace("|", "\\|"),
            NETWORKS.get(network, network),
            f"{claimed:g}",
            f"{best['at_least']:.2f}",
            f"{draws:,}",
            f"{ceiling(draws):.2f}",
            best["verdict"],
        ]


NETWORKS = {"small": "60 vertices", "path": "a path of 4"}


@dataclass(frozen=True)
class DocumentTable:
    """A table of a document: its recipe, and how its rows are made, the header first."""

    recipe: str
    scale: Scale
    rows: Callable[[], Rows]
    folder: str = ""  # where the document is, as a link from there to docs/

    def markdown(self) -> str:
        header, *rows = self.rows()
        lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (header, *rows)]
        table = "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])
        reproduction = kept(self.recipe, self.scale).reproduction
        older = len(reproduction.older)
        age = f"; {older} of {reproduction.finished} are of older code (†)" if older else ""
        link = f"{self.folder}results/{self.recipe}-{self.scale}/table.md"
        return f"\n{table}\n\n<small>[All of it]({link}): {reproduction.origins}{age}.</small>\n\n"


TABLES = {
    "three-answers": DocumentTable("three-answers", "full", three_answers, "docs/"),
    "fedr-table-2-models": DocumentTable("fedr-table-2", "full", fedr_models),
    "fedr-table-2-noge": DocumentTable("fedr-table-2", "full", fedr_noge),
    "fedr-table-2-graphs": DocumentTable("fedr-table-2", "full", fedr_graphs),
    "fedr-noge-candidates": DocumentTable("fedr-noge-candidates", "full", noge_candidates),
    "fedr-noge-graphs": DocumentTable("fedr-noge-graphs", "full", noge_graphs),
    "blp": DocumentTable("blp", "full", partial(described, "blp")),
    "dkrl-table-1": DocumentTable("dkrl-table-1", "full", partial(described, "dkrl-table-1")),
    "text-fusion": DocumentTable("text-fusion", "full", fused),
    "dkrl-private": DocumentTable("dkrl-private", "full", private_texts),
    "dkrl-audit": DocumentTable("dkrl-audit", "full", text_audit),
    "dkrl-epsilon": DocumentTable("dkrl-epsilon", "full", text_epsilon),
    "fedr-table-7": DocumentTable("fedr-table-7", "quick", fedr_table_7),
    "federation-gain": DocumentTable("federation-gain", "full", federation_gain),
    "fedr-fede-apart": DocumentTable("fedr-fede-apart", "full", fede_apart),
    "fedr-table-1": DocumentTable("fedr-reconstruction", "full", fedr_table_1),
    "fedr-table-4": DocumentTable("fedr-reconstruction", "full", fedr_table_4),
    "leakage-over-epsilon": DocumentTable("leakage-over-epsilon", "quick", leakage),
    "encoder-leakage": DocumentTable("encoder-leakage", "quick", encoder_leakage),
    "dpkge-trade-off": DocumentTable("dpkge-link-prediction", "quick", trade_off),
    "privacy-utility-FB15k-237": DocumentTable(
        "privacy-utility", "full", partial(private_utility, "FB15k-237")
    ),
    "privacy-utility-UMLS": DocumentTable("privacy-utility", "full", partial(private_utility, "UMLS")),
    "privacy-federated": DocumentTable("privacy-federated", "full", private_federation),
    "membership": DocumentTable("membership", "quick", membership),
    "membership-exchanges": DocumentTable("membership-exchanges", "quick", membership_of_exchanges),
    "membership-shadows": DocumentTable("membership", "quick", shadow_attacks),
    "audit": DocumentTable("dpkge-audit", "full", audit),
    "dpne-table-1": DocumentTable("dpne-table-1", "full", private_classes),
    "dpne-table-3": DocumentTable("dpne-table-3", "full", private_links),
    "dpne-audit": DocumentTable("dpne-audit", "full", edge_audit),
    "active-audit": DocumentTable("dpkge-active-audit", "full", active_audit),
}


def with_tables(text: str) -> str:
    """A document with each of its tables as the cells have it."""
    return BLOCK.sub(lambda block: block[1] + TABLES[block[2]].markdown() + block[3], text)


def order_of(table: str, is_today: bool = True) -> Order:
    """What a table.md says it was asked for; not compared with today's code, it is with what it names."""
    asked, code = HEADER.search(table), CODE.search(table)
    if asked is None:
        raise ValueError(
            "the table has no line `fedkge reproduce … --out docs/results`, as the program writes it"
        )
    name, scale, seeds = asked.groups()
    other = None if is_today or code is None else code[1]
    return Order(name, RESULTS, scale_named(scale), int(seeds) if seeds else None, compared_with=other)


def main() -> None:
    for path in sorted((DOCS / "results").glob("*/table.md")):
        files = order_of(path.read_text(encoding="utf-8")).reproduction().files
        for name, text in files.items():
            path.with_name(name).write_text(text, encoding="utf-8")
    for document in [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]:
        text = document.read_text(encoding="utf-8")
        if (written := with_tables(text)) != text:
            document.write_text(written, encoding="utf-8")
            print(f"{document.name}: tables written again")


if __name__ == "__main__":
    main()
