"""The three answers of one run: what it gained, what it cost, what leaked."""

from __future__ import annotations

from fedkge.attacks.findings import Finding, worst
from fedkge.simulations.report.page import PageAnswer
from fedkge.simulations.report.privacy_section import by_client
from fedkge.simulations.report.words import (
    MISSING,
    bytes_of,
    epsilon_of,
    figure,
    interval,
    protocol_of,
    several,
)
from fedkge.simulations.runs.metadata import Metadata
from fedkge.simulations.runs.run_folder import ALL, RunFolder

__all__ = ["GAIN", "LEAK", "NOT_ATTACKED", "PRICE", "answers", "exposure", "sentence_of"]

GAIN = "Utility: what was gained?"
PRICE = "Bytes: what did it cost?"
LEAK = "Leakage: what can others learn?"
NOT_ATTACKED = "To measure it, record a run and attack it."


def answers(run: RunFolder) -> list[PageAnswer]:
    return [_utility(run), _bytes(run), _leakage(run)]


def _utility(run: RunFolder) -> PageAnswer:
    test = run.summary.part("utility", "test")
    value = test.number("mrr", "value")
    if value is None:
        return _utility_so_far(run)
    rows = [("95 % interval", interval(test.listed("mrr", "interval")))]
    rows += [(f"Hits@{k}", figure(test.number(f"hits@{k}", "value"))) for k in (1, 3, 10)]
    known = [row for row in rows if row[1] not in ("", MISSING)]
    line = (
        f"over {several(test.number('count') or 0, 'test triple')}, with the tables of round "
        f"{run.summary.text('utility', 'best_round')} of {run.last_round}"
    )
    by_all = run.summary.part("utility", "filters", "all", "test", "mrr")
    if (other := by_all.number("value")) is not None:
        span = interval(by_all.listed("interval"))
        known.append(("MRR, filter all", f"{figure(other)} ({span})"))
    ends = run.summary.part("utility", "filters", "own", "test", "ends")
    known += [
        (f"MRR, {words}", f"{figure(scores.number('mrr', 'value'))} ({several(count, 'triple')})")
        for end, words in (("seen", "both ends seen"), ("unseen", "an end unseen"))
        for scores in [ends.part(end)]
        if (count := scores.number("count"))
    ]
    protocol = protocol_of(run.summary.part("utility", "protocol"))
    lines = [line, *([f"ranked with {protocol}"] if protocol else [])]
    return PageAnswer(GAIN, figure(value), "test MRR", lines, known)


def _utility_so_far(run: RunFolder) -> PageAnswer:
    """An unfinished run has validation scores at most."""
    curve = run.curve("valid", "mrr").get(ALL, [])
    if not curve:
        return PageAnswer(GAIN, "?", "", ["Nothing was measured."])
    round, value = max(curve, key=lambda point: point[1])
    protocol = protocol_of(run.experiment.part("evaluation"), filter="own")
    lines = [
        f"in round {round:g}; the test is made at the end",
        *([f"ranked with {protocol}"] if protocol else []),
    ]
    return PageAnswer(GAIN, figure(value), "validation MRR so far", lines)


def _bytes(run: RunFolder) -> PageAnswer:
    rows = [("up", bytes_of(run.ledger.total("up"))), ("down", bytes_of(run.ledger.total("down")))]
    if run.last_round and run.num_clients:
        share = run.bytes_total / run.last_round / run.num_clients
        rows.append(("per client and round", bytes_of(share)))
    lines = ["every message counted"]
    target, round = (
        run.experiment.number("federation", "target_mrr"),
        run.summary.number("communication", "rounds_to_target"),
    )
    if target is not None and run.is_finished:
        price = bytes_of(run.summary.number("communication", "bytes_to_target"))
        lines.append(
            f"MRR {target:g} was never reached"
            if round is None
            else f"MRR {target:g} was reached in round {round:g} for {price}"
        )
    return PageAnswer(PRICE, bytes_of(run.bytes_total), f"in {several(run.last_round, 'round')}", lines, rows)


def _leakage(run: RunFolder) -> PageAnswer:
    received = worst([finding for finding in run.findings if not finding.granted])
    granted = worst([finding for finding in run.findings if finding.granted])
    lines = [exposure(run)]
    rows = _largest_epsilon(run.summary.part("privacy"))
    if granted is not None:
        reached = f"{granted.metric} {figure(granted.value)}"
        lines.append(f"If also given {granted.granted}: {reached} ({granted.adversary}).")
    if run.findings and received is None:
        return PageAnswer(LEAK, "none", "of the attacks was possible", lines, rows)
    if received is None:
        return PageAnswer(LEAK, "?", "not attacked", [*lines, NOT_ATTACKED], rows)
    return PageAnswer(LEAK, figure(received.value), received.metric, [sentence_of(received), *lines], rows)


def _largest_epsilon(privacy: Metadata) -> list[tuple[str, str]]:
    """With its standing, claimed or guaranteed, and whether that holds for a simulation alone."""
    spent = by_client(privacy.at("epsilon"))
    if not spent:
        return []
    client, epsilon = max(spent.items(), key=lambda item: item[1])
    standing, _, condition = privacy.text("claimed_or_guaranteed", client).partition(" ")
    simulated = " (simulated: noise from the seed)" if condition else ""
    return [("largest ε of a client", f"{epsilon_of(epsilon)} {standing}{simulated}".rstrip())]


def sentence_of(finding: Finding) -> str:
    """Who found out what, and how it compares to guessing."""
    target = f" about client {finding.target}" if finding.target is not None else ""
    guess = "" if finding.baseline is None else f", guessing reaches {figure(finding.baseline)}"
    chance = "; no better than guessing" if finding.is_at_chance else ""
    note = f" ({finding.note})" if finding.note else ""
    span = interval((finding.low, finding.high))
    return (
        f"The strongest attack: {finding.attack} by {finding.where}{target}, 95 % interval {span}"
        f"{guess}{chance}{note}."
    )


def exposure(run: RunFolder) -> str:
    """What reached the server, in a sentence."""
    privacy = run.summary.part("privacy") if run.is_finished else run.experiment.part("privacy")
    if run.strategy in ("Local", "Central") or privacy.text("union") == "none":
        return "No embedding left a client."
    if privacy.at("secure_aggregation"):
        return "Of embeddings, the server saw only sums over clients."
    return "The server saw every client's shared rows."
