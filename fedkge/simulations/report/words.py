"""Settings and numbers as people say them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isinf

from fedkge.simulations.cli.display import human_bytes
from fedkge.simulations.runs.metadata import Metadata

__all__ = [
    "MISSING",
    "asked",
    "bytes_of",
    "epsilon_of",
    "figure",
    "interval",
    "protocol_of",
    "several",
]

MISSING = "–"

_SHARED = {
    "Local": "nothing is shared",
    "Central": "one party holds all triples",
    "FedE": "they share entity rows",
    "FedR": "they share relation rows, and entity rows never leave a client",
    "FedER": "they share entity and relation rows",
    "FedAvg": "they share the weights of their encoders, and rows never leave a client",
}
_UNIONS = {
    "private": "a private set union numbers the rows",
    "oprf": "rows are numbered by pseudonyms that no client can compute alone",
    "hashed": "a union of keyed hashes numbers the rows",
    "plain": "rows are numbered by their labels in the clear",
}


def asked(experiment: Metadata) -> list[str]:
    """What an experiment does, in a few sentences; a setting that is missing goes unsaid."""
    parts = (_data, _training, _sharing, _protection)
    return [sentence for part in parts if (sentence := part(experiment))]


def figure(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals, or a dash."""
    if value is None or not isfinite(value):
        return "∞" if value is not None and isinf(value) and value > 0 else MISSING
    return f"{value:,.{digits}f}"


def interval(bounds: Sequence[float | None], digits: int = 3) -> str:
    """From the lower bound to the upper; nothing where one is missing."""
    return "–".join(figure(bound, digits) for bound in bounds) if _is_known(bounds) else ""


def protocol_of(protocol: Metadata, filter: str = "") -> str:
    """How scores were ranked; nothing of a run that did not say."""
    names = filter or protocol.text("filter"), protocol.text("sides"), protocol.text("candidates")
    return f"filter {names[0]}, sides {names[1]}, candidates {names[2]}" if all(names) else ""


def epsilon_of(value: float) -> str:
    return "∞" if isinf(value) else f"{value:.3g}"


def bytes_of(count: float | None) -> str:
    """A number of bytes in the unit that reads best, without a zero behind the point."""
    return MISSING if count is None else human_bytes(count).replace(".0 ", " ")


def several(count: float, noun: str) -> str:
    return f"{count:,g} {noun}" if count == 1 else f"{count:,g} {noun}s"


def _is_known(bounds: Sequence[float | None]) -> bool:
    return len(bounds) == 2 and None not in bounds


def _data(experiment: Metadata) -> str:
    dataset, clients = experiment.text("data", "dataset"), experiment.number("data", "clients")
    if not dataset or clients is None:
        return ""
    if experiment.text("federation", "strategy") == "Central":
        return f"One party holds all of {dataset}: the upper bound, without privacy."
    hidden = experiment.at("data", "confidential")
    marked = "" if hidden in (None, 0, "0", "0.0") else f"; confidential triples: {hidden}"
    divided = experiment.text("data", "partition")
    return f"{several(clients, 'client')} hold {dataset} among them, divided by “{divided}”{marked}."


def _training(experiment: Metadata) -> str:
    model, dim = experiment.text("model", "name"), experiment.text("model", "dim")
    rounds, epochs = experiment.number("federation", "rounds"), experiment.number("training", "local_epochs")
    if not model or rounds is None or epochs is None:
        return ""
    length = f"{several(rounds, 'round')} of {several(epochs, 'local epoch')}"
    return f"{model} embeddings of {dim} dimensions are trained for at most {length}."


def _sharing(experiment: Metadata) -> str:
    strategy = experiment.text("federation", "strategy")
    if strategy not in _SHARED:
        return ""
    more = experiment.part("federation").at("share") if strategy not in ("Local", "Central") else None
    beside = f", and beside them {' and '.join(more)}" if more else ""
    return f"With {strategy}, {_SHARED[strategy]}{beside}."


def _protection(experiment: Metadata) -> str:
    """How uploads are hidden, and how training is."""
    parts = []
    privacy = experiment.part("privacy")
    if experiment.text("federation", "strategy") not in ("Local", "Central") and privacy.content:
        summed = privacy.at("secure_aggregation")
        parts.append("secure aggregation hides every upload" if summed else "uploads are in the clear")
        parts.append(_UNIONS.get(privacy.text("union"), ""))
    mode = privacy.text("dp", "mode")
    if mode not in ("", "off"):
        target = privacy.number("dp", "target_epsilon")
        noise = f"σ {privacy.text('dp', 'sigma')}" if target is None else f"noise for ε {target:g}"
        parts.append(f"training is differentially private (mode “{mode}”, {noise}{_worth(mode)})")
    sentence = "; ".join(part for part in parts if part)
    return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""


def _worth(mode: str) -> str:
    """What a mechanism does, and what its ε is worth; nothing of one that is not installed here."""
    from fedkge.client.privacy import MECHANISMS  # seconds to import

    mechanism = MECHANISMS.get(mode)
    return f"; {mechanism.summary}, and ε is {mechanism.standing()}" if mechanism else ""
