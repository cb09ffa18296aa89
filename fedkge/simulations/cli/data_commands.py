"""`fedkge data`: look at datasets, divide them among clients, and check that a division is sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedkge.errors import SettingError
from fedkge.simulations.cli.data.map_command import map_tables

if TYPE_CHECKING:
    from fedkge.datasets import KnowledgeGraph, Split

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look at datasets, divide them, audit a division.")
app.command("map")(map_tables)

Source = Annotated[
    str, typer.Argument(metavar="NAME_OR_PATH", help="A dataset's name, or a file, folder or archive.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="What the columns hold: 'htr', 'head,relation,tail,_,_' (_ is left out), '0,1,2' or "
        "words of the header, 'x_name,relation,y_name' (default: "
        "'hrt', or what the header says)."
    ),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether text files have a header (default: look)."),
]
Features = Annotated[
    list[str] | None,
    typer.Option(help="A file of texts or vectors of entities, or relation:FILE; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """The datasets known by name."""
    from fedkge.datasets import DATASETS, EMBEDDED  # numpy takes half of a second

    rows = {d.name: (d.entities, d.relations, d.train + d.valid + d.test, d.about) for d in DATASETS.values()}
    if as_json:
        keys = ("entities", "relations", "triples", "about")
        print(json.dumps({name: dict(zip(keys, row, strict=True)) for name, row in rows.items()}, indent=2))
        return
    table = Table("name", "entities", "relations", "triples", "what it is", box=None)
    for name in EMBEDDED:
        table.add_row(name, "", "", "", "ships with PyKEEN: no download")
    for name, (*counts, about) in rows.items():
        table.add_row(name, *(f"{count:,}" for count in counts), about)
    table.add_row(
        "synthetic", "", "", "", "made to measure: synthetic:entities=1000,relations=12,triples=10000"
    )
    Console().print(table)
    print("Other names that PyKEEN knows are accepted too.")


@app.command()
def info(
    source: Source,
    columns: Columns = None,
    header: Header = None,
    features: Features = None,
    as_json: Json = False,
) -> None:
    """What a dataset contains."""
    from fedkge.datasets import DATASETS, SPLITS, Split

    loaded = _described(_load(source, columns, header), features)
    split = loaded if isinstance(loaded, Split) else Split.single(loaded)
    known = None if Path(source).exists() else DATASETS.get(split.name)
    counts = {
        "name": split.name,
        "clients": split.num_clients if isinstance(loaded, Split) else None,
        "entities": len(split.entity_labels),
        "relations": len(split.relation_labels),
        **{name: sum(len(graph[name]) for graph in split.clients) for name in SPLITS},
        "held_out_unseen": split.unseen,
        **_coverages(split),
        "content_hash": split.content_hash,
        "about": known.about if known else None,
        "licence": known.licence if known else None,
    }
    counts = {key: value for key, value in counts.items() if value is not None}
    if as_json:
        print(json.dumps(counts, indent=2))
        return
    for key, value in counts.items():
        print(f"{key:<16} {value:,}" if isinstance(value, int) else f"{key:<16} {value}")


@app.command("audit")
def audit_dataset(
    source: Source,
    out: Annotated[Path | None, typer.Option(help="Where to write (default: fedkge-audit/NAME).")] = None,
    columns: Columns = None,
    header: Header = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count, compare and cross-check a dataset or split; warn loudly when held-out triples leak."""
    from fedkge.datasets import Split, audit
    from fedkge.simulations.cli import audit_view

    loaded = _load(source, columns, header)
    with Console(stderr=True).status("auditing"):
        audited = audit(loaded if isinstance(loaded, Split) else Split.single(loaded))
        folder = out or Path("fedkge-audit") / audited.name
        audit_view.write(audited, folder)
    if as_json:
        print(json.dumps(audited.to_dict(), indent=2))
        return
    audit_view.show(audited, Console(), brief=quiet)
    print(f"written to {folder}")


@app.command("split")
def split_dataset(
    source: Source,
    out: Annotated[Path, typer.Option(help="A folder to write, or a file ending in .pkl (the FedE format).")],
    clients: Annotated[int | None, typer.Option(min=1, help="How many clients (default: 5).")] = None,
    partition_: Annotated[
        str | None, typer.Option("--partition", help="See 'fedkge list partitions' (default: random).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    inductive: Annotated[
        str | None,
        typer.Option(
            help="First hold out entities with all their triples: shares for validation and test, '0.1,0.1', "
            "or a folder with dev-ents.txt and test-ents.txt. '0.1,0.1,keep' leaves the triples of all other "
            "entities in their splits."
        ),
    ] = None,
    features: Features = None,
    confidential: Annotated[
        str | None,
        typer.Option(help="Mark statements: 0.5, relation:0.5, predicates:A|B, predicates:@FILE, column."),
    ] = None,
    columns: Columns = None,
    header: Header = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is at --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Divide a dataset among clients and write each client's part."""
    from fedkge.datasets import write_pickle, write_split
    from fedkge.datasets.inductive import check_held_out

    _check_room(out, source, force)
    loaded = _described(_load(source, columns, header), features)
    with Console(stderr=True).status("dividing"):
        if inductive is None:
            made = _divide(loaded, clients, partition_, seed, confidential)
        else:
            held = _without(loaded, inductive, seed, source)
            made = _divide(held, clients, partition_, seed, confidential)
            check_held_out(made, held)
    with Console(stderr=True).status("writing"):
        if out.suffix == ".pkl":
            write_pickle(out, made)
        else:
            write_split(out, made)
    print(made.content_hash if quiet else _summary(made, out))


def _divide(
    loaded: KnowledgeGraph | Split, clients: int | None, spec: str | None, seed: int, confidential: str | None
) -> Split:
    from fedkge.datasets import Split, mark, mark_split, partition

    if isinstance(loaded, Split):
        made = partition(loaded, spec or "given", clients or 0)
        return made if confidential is None else mark_split(made, confidential, seed)
    marked = loaded if confidential is None else mark(loaded, confidential, seed)
    return partition(marked, spec or "random", clients or 5, seed)


def _described(loaded: KnowledgeGraph | Split, features: list[str] | None) -> KnowledgeGraph | Split:
    """With the features of the files that were given."""
    from fedkge.datasets import Split
    from fedkge.datasets.features import described_by, described_split, find

    files = [find(path) for path in features or []]
    if not files:
        return loaded
    return described_split(loaded, files) if isinstance(loaded, Split) else described_by(loaded, files)


def _without(loaded: KnowledgeGraph | Split, rule: str, seed: int, source: str) -> KnowledgeGraph:
    """Without the entities that are held out."""
    from fedkge.datasets import Split
    from fedkge.datasets.inductive import inductive

    if isinstance(loaded, Split):
        raise SettingError(f"--inductive: {source} is already split among clients; give a whole graph")
    return inductive(loaded, rule, seed)


def _coverages(split: Split) -> dict[str, int]:
    """How many entities and relations have features, counted at every client that has them."""
    from fedkge.datasets.features import coverage_of

    counts = {
        f"{kind}_features": sum(coverage_of(graph, kind).having for graph in split.clients)
        for kind in ("entity", "relation")
    }
    return {name: count for name, count in counts.items() if count}


def _summary(split: Split, out: Path) -> str:
    triples = [graph.num_triples for graph in split.clients]
    lines = [
        f"{split.num_clients} clients with {min(triples):,} to {max(triples):,} triples, partition "
        f"'{split.partition}'{'' if split.seed is None else f', seed {split.seed}'}",
        f"held-out triples with an entity or relation that their client's train set lacks: {split.unseen:,}",
    ]
    if split.unassigned:
        lines.append(f"triples of the source that no client holds: {split.unassigned:,}")
    return "\n".join([*lines, f"content hash {split.content_hash}", f"written to {out}"])


def _check_room(out: Path, source: str, force: bool) -> None:
    """Refuse early what may not be replaced; replacing itself comes last, when all else has worked."""
    from fedkge.datasets.formats.pickles import companions
    from fedkge.datasets.store import is_replaceable

    is_pickle = out.suffix == ".pkl"
    try:
        taken = [path for path in (out, *(companions(out) if is_pickle else ())) if _is_taken(path)]
        is_source = any(path.resolve() == Path(source).resolve() for path in taken)
    except OSError as error:
        raise SettingError(f"cannot write {out}: {error.strerror}; choose another --out") from error
    if is_source:
        raise SettingError(f"{out} would replace the source itself; choose another --out")
    if taken and not force:
        raise SettingError(f"{taken[0]} exists already; choose another --out, or --force to replace it")
    if not all(path.is_file() if is_pickle else path.is_dir() and is_replaceable(path) for path in taken):
        raise SettingError(
            f"{out} was not written by 'fedkge data split'; remove it yourself if that is meant"
        )


def _is_taken(path: Path) -> bool:
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _load(source: str, columns: str | None, header: bool | None) -> KnowledgeGraph | Split:
    from fedkge.datasets import load

    with Console(stderr=True).status(f"loading {escape(source)}"):
        return load(source, columns, header)
