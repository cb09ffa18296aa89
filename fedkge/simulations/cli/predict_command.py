"""`fedkge predict`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedkge.errors import SettingError

if TYPE_CHECKING:
    from fedkge.simulations.trained.prediction import Prediction

__all__ = ["predict_answers"]


def predict_answers(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    relation: Annotated[str, typer.Option(help="The relation's label.")],
    client: Annotated[int, typer.Option(min=0, help="Whose model answers.")] = 0,
    head: Annotated[str | None, typer.Option(help="The head's label, to ask for tails.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail's label, to ask for heads.")] = None,
    head_text: Annotated[
        str | None,
        typer.Option(help="The text of a head that the run did not have; a model must read texts."),
    ] = None,
    tail_text: Annotated[str | None, typer.Option(help="The same of a tail.")] = None,
    heads: Annotated[
        Path | None,
        typer.Option(help="A file of new heads: a label, a tab and a text each, or an .npz of vectors."),
    ] = None,
    tails: Annotated[Path | None, typer.Option(help="The same of tails.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask a client's trained model which entities complete a statement.

    The end that is given is an entity of the client, or a new one by its text.
    """
    from fedkge.simulations.trained.prediction import predict, predict_new  # takes seconds to import

    ends = {"head": head, "tail": tail, "head_text": head_text, "tail_text": tail_text}
    if heads is None and tails is None:
        prediction = predict(run_dir, client, relation, top=top, **ends)
        if as_json:
            _print_json(asdict(prediction))
        else:
            _show([prediction])
        return
    if any(value is not None for value in ends.values()):
        raise SettingError(
            "--heads and --tails: a file of new entities is all that is given beside --relation"
        )
    with Console(stderr=True).status("asking"):
        predictions = predict_new(run_dir, client, relation, heads=heads, tails=tails, top=top)
    if as_json:
        _print_json([asdict(prediction) for prediction in predictions])
    else:
        _show(predictions)


def _print_json(content: Any) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _show(predictions: Sequence[Prediction]) -> None:
    first = predictions[0]
    given = [] if len(predictions) == 1 else ["head" if first.tail is None else "tail"]
    table = Table(*given, "rank", "tail" if first.tail is None else "head", "score", "known from", box=None)
    for prediction in predictions:
        label = [escape(str(prediction.head or prediction.tail))] if given else []
        for answer in prediction.answers:
            cells = (str(answer.rank), escape(answer.label), f"{answer.score:.4f}", answer.known or "")
            table.add_row(*label, *cells)
    Console().print(table)
    if first.new_words:
        words = "1 word is" if first.new_words == 1 else f"{first.new_words:,} words are"
        print(f"{words} in no text of the run: read by the given vectors, to which training added nothing")
