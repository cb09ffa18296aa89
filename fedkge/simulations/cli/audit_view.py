"""An audit as people want to see it: tables and a verdict in the terminal, JSON and a plot on disk."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fedkge.datasets import Audit
from fedkge.storage import storage_errors

__all__ = ["show", "write"]

_MOST_ROWS = 20
_BAR = 40


def write(audit: Audit, folder: Path) -> None:
    """`audit.json` and `degrees.png`."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "audit.json").write_text(json.dumps(audit.to_dict(), indent=2) + "\n", encoding="utf-8")
        _plot_degrees(audit, folder / "degrees.png")


def show(audit: Audit, console: Console, brief: bool = False) -> None:
    """Print the tables, then the verdict."""
    if not brief:
        _show_counts(audit, console)
        _show_network(audit, console)
        _show_clients(audit, console)
        _show_overlap(audit, console)
        _show_leakage(audit, console)
        _show_relation_pairs(audit, console)
        _show_degrees(audit, console)
    _show_verdict(audit, console)


def _show_counts(audit: Audit, console: Console) -> None:
    about = f"({len(audit.clients)} clients, partition '{audit.partition}')"
    console.rule(f"[bold]{escape(audit.name)}[/] {escape(about)}")
    console.print(
        f"{audit.entities:,} entities, {audit.relations:,} relations, {audit.triples:,} triples, "
        f"{audit.distinct:,} of them distinct"
    )
    if audit.unassigned:
        console.print(f"{audit.unassigned:,} triples of the source are with no client")
    if audit.merged_labels:
        console.print(
            f"{audit.merged_labels:,} labels were another spelling (Unicode NFC) of one that is here"
        )
    if audit.local_labels:
        console.print(f"{audit.local_labels:,} labels are local to a client (blank nodes) and are not shared")
    for count in ("entities", "relations"):
        mean, deviation = audit.spread(count)
        console.print(f"{count} per client: {mean:.2f}±{deviation:.2f}")


def _show_network(audit: Audit, console: Console) -> None:
    facts = audit.network
    if facts is None:
        return
    kind = {None: "network", True: "directed network", False: "undirected network"}[facts.directed]
    console.print(
        f"{kind}: {facts.edges:,} pairs of vertices are joined, {facts.both_ways:,} of them both ways; "
        f"{facts.isolated:,} vertices have no edge"
    )
    rows = "" if facts.rows is None else f" of {facts.rows:,} rows of the edge list"
    console.print(f"{facts.self_loops:,}{rows} are self-loops, {facts.repeated:,} repeat another one")
    if facts.classes:
        console.print(
            f"{facts.classes:,} classes, the largest with {facts.largest_class:.1%} of the vertices; "
            f"{facts.unclassified:,} vertices have none"
        )


def _show_clients(audit: Audit, console: Console) -> None:
    counts = ["entities", "relations", "train", "valid", "test", "distinct", "unseen"]
    if any(client.confidential for client in audit.clients):
        counts.append("confidential")
    table = Table("client", *counts, box=None, padding=(0, 1, 0, 0))
    for number, client in enumerate(audit.clients[:_MOST_ROWS]):
        table.add_row(str(number), *(f"{getattr(client, count):,}" for count in counts))
    console.print(table)
    if len(audit.clients) > _MOST_ROWS:
        console.print(f"… and {len(audit.clients) - _MOST_ROWS} more clients (all are in audit.json)")


def _show_overlap(audit: Audit, console: Console) -> None:
    pairs = [(a, b) for a in range(len(audit.clients)) for b in range(a)]
    if not pairs:
        return
    for kind, matrix in (("entities", audit.entity_overlap), ("relations", audit.relation_overlap)):
        values = sorted(matrix[a][b] for a, b in pairs)
        console.print(
            f"{kind} in common (Jaccard, pairs of clients): {values[0]:.1%} to {values[-1]:.1%}, "
            f"mean {sum(values) / len(values):.1%}"
        )
    console.print(f"triples that more than one client holds: {audit.shared_triples:,}")


def _show_leakage(audit: Audit, console: Console) -> None:
    table = Table(
        "held out",
        "triples",
        "in own train",
        "in any client's train",
        "answered by a twin relation",
        "symmetric",
        box=None,
    )
    for name, leak in (("valid", audit.valid), ("test", audit.test)):
        table.add_row(
            name,
            f"{leak.held_out:,}",
            f"{leak.in_own_train:,} ({leak.own_share:.1%})",
            f"{leak.in_any_train:,} ({leak.any_share:.1%})",
            f"{leak.shortcut:,} ({leak.shortcut_share:.1%})",
            f"{leak.symmetric:,} ({leak.symmetric_share:.1%})",
        )
    console.print(table)


def _show_relation_pairs(audit: Audit, console: Console) -> None:
    for pair in audit.relation_pairs[:_MOST_ROWS]:
        console.print(
            f"near-{pair.kind} relations ({pair.shared:.0%} of pairs): {pair.first} | {pair.second}",
            markup=False,
        )
    if len(audit.relation_pairs) > _MOST_ROWS:
        console.print(f"… and {len(audit.relation_pairs) - _MOST_ROWS} more pairs (all are in audit.json)")


def _show_degrees(audit: Audit, console: Console) -> None:
    most = max((count for _, count in audit.degrees), default=1)
    console.print("degree    entities")
    for low, count in audit.degrees:
        console.print(f"{low:>6}+ {count:>9,} {'█' * round(_BAR * count / most)}", highlight=False)


def _show_verdict(audit: Audit, console: Console) -> None:
    unseen = sum(client.unseen for client in audit.clients)
    if unseen:
        console.print(
            f"note: {unseen:,} held-out triples have an entity or relation unseen in their client's train set"
        )
    lines = [*audit.problems, *audit.cautions, f"content hash {audit.content_hash}"]
    title, style = "caution", "yellow"
    if audit.leaks:
        title, style = "DO NOT TRUST RESULTS ON THIS SPLIT: IT LEAKS", "bold white on red"
    elif audit.given_away:
        title, style = "DO NOT TRUST RESULTS ON THIS SPLIT: TWIN RELATIONS ANSWER IT", "bold white on red"
    elif not audit.judged:
        lines.insert(0, "leakage cannot be judged: no triple is held out")
    elif not audit.problems:
        title, style = "sound: no leakage above 1 %", "yellow" if audit.cautions else "green"
    console.print(Panel("\n".join(lines), title=title, style=style))


def _plot_degrees(audit: Audit, path: Path) -> None:
    from matplotlib.figure import Figure  # takes long to import

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    shown = [(low, count) for low, count in audit.degrees if low > 0 and count > 0]
    axes.bar(
        [low for low, _ in shown],
        [count for _, count in shown],
        width=[0.8 * low for low, _ in shown],
        align="edge",
    )
    axes.set(xscale="log", yscale="log", xlabel="degree", ylabel="entities")
    axes.set_title(f"Degrees in {audit.name}", parse_math=False)
    figure.savefig(path, dpi=120)
