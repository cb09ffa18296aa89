"""Runs under private set union and secure aggregation: the same result everywhere, and sums alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedkge.client.participant import Participant
from fedkge.client.secure import SecureParticipant
from fedkge.crypto import FixedPoint, SecureAggregationServer
from fedkge.crypto.keys import SIGNATURE_SIZE
from fedkge.crypto.wire import HEADER_SIZE, SERVER, Kind, Writer
from fedkge.datasets import load_graph
from fedkge.errors import FederationError, SettingError, TamperError
from fedkge.exchange import Download, Table, Upload, decode, encode
from fedkge.experiment import Experiment
from fedkge.figures import TRAINING
from fedkge.server.aggregation import mean_over_holders
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import check_privacy
from fedkge.server.secure import SecureFederation
from fedkge.server.sums import Total
from fedkge.simulations import engines, runs
from fedkge.simulations.worker import Worker

Make = Callable[..., Experiment]
Carried = list[tuple[engines.Letter, bytes | None]]
PLAIN = ("privacy.union=plain", "privacy.secure_aggregation=false")
FIVE = "data.clients=5"


class Crash(BaseException):
    """Stands for a process that ends without a word."""


def crash_in(round: int) -> Callable[[Any], None]:
    def crash(progress: Any) -> None:
        if progress.round == round and progress.loss is not None:
            raise Crash

    return crash


def failures(folder: Path) -> list[tuple[Any, ...]]:
    return list(pd.read_csv(folder / "failures.csv").itertuples(index=False, name=None))


def failing(monkeypatch: pytest.MonkeyPatch, verb: str, clients: set[int], rounds: set[int]) -> None:
    """Let clients raise whenever they are asked this in these rounds."""
    answer = getattr(SecureParticipant, verb)

    def sometimes(self: SecureParticipant, download: Download) -> Upload:
        if self.client in clients and download.round in rounds:
            raise RuntimeError("out of coffee")
        return answer(self, download)

    monkeypatch.setattr(SecureParticipant, verb, sometimes)


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[Total]:
    """Every sum of a round that the server got to see."""
    seen: list[Total] = []
    move = SecureFederation._move

    def recorded(self: SecureFederation, total: Total) -> None:
        seen.append(total)
        move(self, total)

    monkeypatch.setattr(SecureFederation, "_move", recorded)
    return seen


# The same result everywhere.


def test_threads_and_kinds_of_union_do_not_change_the_result(secret: Make, tmp_path: Path) -> None:
    variants = (
        "engine.workers=1",
        "engine.workers=2",
        "privacy.consistency=true",
        "privacy.union=oprf",
        "privacy.union=hashed",
        "privacy.union=plain",
    )
    hashes = {
        runs.run(secret(change, "privacy.query_budget=64"), tmp_path / str(place)).summary["result_hash"]
        for place, change in enumerate(variants)
    }
    assert len(hashes) == 1  # keys and row numbers differ from run to run, sums do not


def test_ray_gives_the_same_bits_and_survives_a_dead_worker(
    secret: Make, tmp_path: Path, ray_running: Any
) -> None:
    inline = runs.run(secret(), tmp_path / "inline").summary
    grids: list[engines.RayGrid] = []
    build = engines.RayGrid.__init__

    def remember(self: engines.RayGrid, *arguments: Any) -> None:
        build(self, *arguments)
        grids.append(self)

    def assassin(progress: Any) -> None:
        if progress.round in (1, 3) and progress.loss is not None:
            ray_running.kill(grids[0].actors[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines.RayGrid, "__init__", remember)
        killed = runs.run(secret("engine.name=ray", "engine.workers=2"), tmp_path / "killed", assassin)
    assert killed.summary["result_hash"] == inline["result_hash"]
    assert killed.summary["communication"] == inline["communication"]
    assert failures(tmp_path / "killed") == []


@pytest.mark.parametrize(("strategy", "when"), [("FedR", 1), ("FedR", 3), ("FedE", 3)])
def test_a_resumed_run_ends_in_the_same_bits(strategy: str, when: int, secret: Make, tmp_path: Path) -> None:
    experiment = secret(f"federation.strategy={strategy}")
    whole = runs.run(experiment, tmp_path / "whole")
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(when))
    resumed = runs.resume(tmp_path / "cut", experiment=experiment)
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]
    pd.testing.assert_frame_equal(resumed.metrics, whole.metrics)


def test_a_name_too_many_for_the_query_budget_stops_the_union(secret: Make, out: Path) -> None:
    with pytest.raises(FederationError, match="0 of 3 clients answered"):
        runs.run(secret("privacy.union=oprf", "privacy.query_budget=10"), out)
    assert "raise privacy.query_budget" in str(failures(out))


def test_a_lost_answer_is_given_again_word_for_word(
    secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs.run(secret(), tmp_path / "whole")
    handle, lost = Worker.handle, set()

    def forgetful(self: Worker, node: int, kind: str, *rest: Any) -> Any:
        answer = handle(self, node, kind, *rest)
        if node == 2 and kind not in lost:
            lost.add(kind)
            return None, "lost on the way"
        return answer

    monkeypatch.setattr(Worker, "handle", forgetful)
    again = runs.run(secret("federation.on_failure=repeat"), tmp_path / "again")
    assert again.summary["result_hash"] == whole.summary["result_hash"]
    assert len(lost) == len(failures(tmp_path / "again")) == 9  # every kind of message


@pytest.mark.parametrize("strategy", ["Local", "Central"])
def test_strategies_that_share_nothing_are_as_without_protection(
    strategy: str, secret: Make, tiny: Make, tmp_path: Path
) -> None:
    change = f"federation.strategy={strategy}"
    protected = runs.run(secret(change, "privacy.query_budget=64"), tmp_path / "a").summary
    assert protected["result_hash"] == runs.run(tiny(change), tmp_path / "b").summary["result_hash"]
    assert protected["privacy"]["union"] == "none"


# The sums are right.


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_masked_means_agree_with_plain_means_of_the_same_uploads(
    precision: str, secret: Make, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, move = SecureParticipant._write_delta, SecureFederation._move
    sent: dict[int, Upload] = {}
    moved: dict[int, dict[int, np.ndarray]] = {}  # client -> row -> how far it moved, exactly
    initial: dict[str, dict[int, np.ndarray]] = {"entity": {}, "relation": {}}
    encoding, rounding = [], []

    def sending(self: SecureParticipant, words: Any) -> None:
        tables = {}
        for name, holding in self.holdings.items():
            ids = self.tables[name].shared[holding.places]  # type: ignore[index]
            rows = self.model.tables[name][holding.local]
            tables[name] = Table(ids, rows)
            initial[name] |= dict(zip(ids.tolist(), self._initial(name), strict=True))
            if name == "entity":
                exact = rows.astype(np.float64) - self.reference[name]
                moved[self.client] = dict(zip(ids.tolist(), exact, strict=True))
        sent[self.client] = Upload(1, self.client, tables)
        write(self, words)

    def moving(self: SecureFederation, total: Total) -> None:
        move(self, total)
        first = self.tables["entity"]  # its sums come first in the vector
        sums = self.sums.plan.fixed_point.decode(total.words[: first.rows.size]).reshape(first.rows.shape)
        for row, mean in zip(
            first.ids.tolist(), sums / self.counts["entity"][first.ids][:, None], strict=True
        ):
            held = [own[row] for own in moved.values() if row in own]
            encoding.append(np.abs(mean - np.mean(held, axis=0)).max())
        for name, table in self.tables.items():
            plain = mean_over_holders(list(sent.values()), name)
            assert plain is not None
            assert plain.ids.tolist() == table.ids.tolist()
            masked = np.array([initial[name][row] for row in table.ids.tolist()], np.float64) + table.rows
            rounding.append(np.abs(masked - plain.rows).max())

    monkeypatch.setattr(SecureParticipant, "_write_delta", sending)
    monkeypatch.setattr(SecureFederation, "_move", moving)
    runs.run(secret("federation.strategy=FedER", f"federation.precision={precision}"), out)
    bound = FixedPoint(8.0, 3).error_bound
    assert bound == 2.0**-27
    assert 0 < max(encoding) <= bound + 1e-15
    assert len(rounding) == 4 * 2
    # Rows and offsets below 4 are rounded once more, as float32 or float16, on their way to the clients.
    assert max(rounding) <= bound + 2.0 ** (-22 if precision == "float32" else -10)


def test_scores_without_secure_aggregation_are_the_same_when_every_row_is_shared(
    secret: Make, tiny: Make, tmp_path: Path
) -> None:
    masked = runs.run(secret("privacy.min_holders=1"), tmp_path / "masked")
    plain = runs.run(tiny(), tmp_path / "plain")
    assert masked.summary["privacy"]["rows_not_shared"] == {"relation": 0}
    assert masked.test() == pytest.approx(plain.test(), abs=2e-3)  # rows differ in their last bits
    own, known = (each.summary["utility"]["per_client"] for each in (masked, plain))
    assert {c: own[c]["test"]["count"] for c in own} == {c: known[c]["test"]["count"] for c in known}


def test_rows_with_too_few_holders_stay_at_home(secret: Make, out: Path) -> None:
    result = runs.run(secret(FIVE), out)
    graphs = [load_graph(out / "data" / f"client-{number}") for number in range(5)]
    holders = pd.Series([label for graph in graphs for label in graph.relation_labels]).value_counts()
    assert result.summary["privacy"]["rows_not_shared"] == {"relation": int((holders < 3).sum())}


def test_values_beyond_the_clip_are_counted(secret: Make, tmp_path: Path) -> None:
    assert runs.run(secret(), tmp_path / "wide").summary["privacy"]["clip_rate"] == 0.0
    narrow = runs.run(secret("privacy.clip=0.001"), tmp_path / "narrow").summary["privacy"]["clip_rate"]
    assert 0.5 < narrow <= 1.0


# What the server sees.


def in_every_encoding(secret: bytes) -> set[bytes]:
    found = {secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)}
    return found | {base64.urlsafe_b64encode(secret), base64.b32encode(secret), secret[::-1]}


def traces_of_label(label: str) -> Iterator[bytes]:
    """The label, and every hash of it that anybody could compute."""
    for text in (label.encode(), label.encode("utf-16-le"), label.encode("utf-32-le")):
        yield from in_every_encoding(text)
    for kind in ("sha256", "sha1", "md5", "sha512", "blake2b", "blake2s", "sha3_256"):
        digest = hashlib.new(kind, label.encode()).digest()
        yield from in_every_encoding(digest)
        yield from in_every_encoding(digest[:12])


def traces_of_row(row: np.ndarray) -> Iterator[bytes]:
    for kind in ("<f4", ">f4", "<f8", "<f2"):
        yield from in_every_encoding(row.astype(kind).tobytes())


def traces(wire: bytes, labels: set[str], rows: list[np.ndarray], words: list[bytes]) -> set[str]:
    """What of a client's secrets is in these bytes."""
    found = {f"label {label}" for label in labels if any(trace in wire for trace in traces_of_label(label))}
    found |= {f"row {i}" for i, row in enumerate(rows) if any(trace in wire for trace in traces_of_row(row))}
    return found | {f"words {i}" for i, own in enumerate(words) if own in wire}


@pytest.mark.parametrize(("strategy", "union"), [("FedR", "private"), ("FedE", "private"), ("FedR", "oprf")])
def test_no_label_hash_or_row_of_any_client_reaches_the_server(
    strategy: str,
    union: str,
    secret: Make,
    tiny: Make,
    tmp_path: Path,
    carried: Carried,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = {"FedR": "relation", "FedE": "entity"}[strategy]
    rows: list[np.ndarray] = []
    words: list[bytes] = []
    trained, write = Participant._train, SecureParticipant._write_delta

    def training(self: Participant, round: int) -> None:
        trained(self, round)
        rows.extend(self.model.tables[name].copy())

    def encoding(self: SecureParticipant, vector: Any) -> None:
        write(self, vector)
        words.extend(block.tobytes() for block in vector[: -TRAINING.num_words].reshape(-1, 8) if block.any())
        words.append(vector[-TRAINING.num_words :].tobytes())  # the figures

    monkeypatch.setattr(Participant, "_train", training)
    monkeypatch.setattr(SecureParticipant, "_write_delta", encoding)
    settings = (f"federation.strategy={strategy}", "federation.rounds=2")
    runs.run(secret(*settings, f"privacy.union={union}", "privacy.query_budget=64"), tmp_path / "secret")
    graphs = [load_graph(tmp_path / "secret" / "data" / f"client-{number}") for number in range(3)]
    labels = {label for graph in graphs for label in (*graph.relation_labels, *graph.entity_labels)}
    labels = {label for label in labels if len(label) > 5} - {"entity"}  # shorter ones turn up in noise
    received = b"".join(payload or b"" for _, payload in carried)
    assert len(rows) > 100
    assert len(words) > 100
    assert traces(received, labels, rows, words) == set()

    carried.clear()
    rows.clear()
    runs.run(tiny(*settings), tmp_path / "plain")
    received = b"".join(payload or b"" for _, payload in carried)
    held = {label for graph in graphs for label in getattr(graph, f"{name}_labels")} & labels
    found = traces(received, labels, rows, [])
    assert {f"label {label}" for label in held} <= found
    assert sum(trace.startswith("row") for trace in found) == len(rows)
    for kind in ("sha256", "md5", "blake2b"):  # the search knows a hash when it sees one
        planted = hashlib.new(kind, b"isolated_label").digest()
        for wire in (planted, planted.hex().encode(), base64.b64encode(planted)):
            assert traces(b"...." + wire + b"....", {"isolated_label"}, [], []) == {"label isolated_label"}


def test_every_byte_is_counted_and_the_table_is_sent_once(secret: Make, out: Path, carried: Carried) -> None:
    result = runs.run(secret("federation.strategy=FedE"), out)
    cost = result.summary["communication"]
    assert cost["bytes_down"] == sum(len(letter) for letter, _ in carried)
    assert cost["bytes_up"] == sum(len(payload or b"") for _, payload in carried)
    phases = {phase.split()[0] for phase in cost["by_phase"]}
    assert phases == {"setup", "union", "train", "unmask", "evaluate", "test"}
    kinds = [letter.kind for letter, _ in carried]
    assert kinds.count("query.unmask") == 3 * (1 + 4 + 2 + 1)  # holders, rounds, evaluations, test
    assert kinds.count("query.advertise") == 3 * 2  # all other sums were prepared on the way
    told = [letter for letter, _ in carried if letter.kind == "train" and letter.group == "2"]
    assert len(told) == 3
    assert all(letter.payload is told[0].payload for letter in told)
    shared = decode(told[0].payload, Download).tables["entity"]
    assert len(shared) == 135 - result.summary["privacy"]["rows_not_shared"]["entity"]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("plain", ["all 46 labels", "which client holds which label"]),
        ("hashed", ["46 pseudonyms", "which client holds which pseudonym"]),
        ("private", ["46 pseudonyms", "who holds what: nothing"]),
        ("oprf", ["46 pseudonyms", "no client can compute alone", "who holds what: nothing"]),
    ],
)
def test_the_summary_says_what_the_server_learned(
    mode: str, words: list[str], secret: Make, out: Path
) -> None:
    result = runs.run(secret(f"privacy.union={mode}", "privacy.query_budget=64", "federation.rounds=1"), out)
    privacy = result.summary["privacy"]
    text = "; ".join(privacy["what_the_server_learned"])
    assert all(each in text for each in [*words, "per-client rows: none"])
    assert (privacy["union"], privacy["secure_aggregation"]) == (mode, True)
    assert json.loads((out / "summary.json").read_text()) == result.summary
    assert set(result.metrics["client"]) == {"all"}
    assert not (out / "clients").exists()  # no key stays behind


# Attacks that subtract sums.


def test_a_round_is_not_unmasked_again_for_others_after_a_resume(
    secret: Make, tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: list[np.ndarray] = []
    write = SecureParticipant._write_delta

    def sending(self: SecureParticipant, words: Any) -> None:
        write(self, words)
        if (self.client, self.round) == (4, 3):
            uploads.append(words.copy())

    monkeypatch.setattr(SecureParticipant, "_write_delta", sending)

    def attack(folder: Path, *, forget: bool) -> None:
        """Sum round 3, crash, resume, and let client 4 seem to drop out of the same round."""
        totals.clear()
        uploads.clear()
        with pytest.raises(Crash):
            runs.run(secret(FIVE), folder, crash_in(3))
        if forget:
            for path in folder.glob("clients/run-*/client-*/secrets.safetensors"):
                path.unlink()
        with monkeypatch.context() as patch:
            failing(patch, "train", {4}, {3})
            runs.resume(folder)

    attack(tmp_path / "careless", forget=True)
    with_all, without = totals[2:4]
    assert (with_all.survivors, without.survivors) == ((0, 1, 2, 3, 4), (0, 1, 2, 3))
    rows = slice(0, -TRAINING.num_words)  # figures have seconds in them, which never repeat
    assert np.array_equal((with_all.words - without.words)[rows], uploads[0][rows])

    attack(tmp_path / "guarded", forget=False)
    assert [len(total.survivors) for total in totals] == [5, 5, 5, 5]  # 1, 2, 3, and 4 after the resume
    text = str(failures(tmp_path / "guarded"))
    assert "would reveal single clients" in text
    assert "nothing summed" in text


def two_faced(patch: pytest.MonkeyPatch) -> None:
    """A server that tells clients 0 and 1 in round 3 that client 4 dropped out, and takes any signature."""
    ask, victims, told = Messenger.ask, (0, 1), [0, 1, 2, 3]

    def falsified(letter: bytes) -> bytes:
        kind, session = Kind(letter[5]), letter[8:HEADER_SIZE]
        writer = Writer(kind, session, SERVER).numbers(told, 2)
        if kind == Kind.QUORUM:
            writer.numbers(told, 2).raw(letter[-5 * SIGNATURE_SIZE : -SIGNATURE_SIZE])
        return writer.finish()

    def lying(
        self: Messenger, downloads: Any, kind: str, phase: str, round: int, *more: Any, **rest: Any
    ) -> Any:
        if (
            round == 3
            and kind in ("query.consent", "query.unmask")
            and downloads[0].facts["sum"]["round"] == 3
        ):
            for client in victims:
                letters = dict(downloads[client].letters)
                letters["survivors"] = falsified(letters["survivors"])
                downloads = {**downloads, client: replace(downloads[client], letters=letters)}
        return ask(self, downloads, kind, phase, round, *more, **rest)

    def credulous(self: SecureAggregationServer, client: int, message: bytes) -> None:
        self._consents[client] = message[HEADER_SIZE:]

    patch.setattr(Messenger, "ask", lying)
    patch.setattr(SecureAggregationServer, "_collect_consent", credulous)


def test_signed_survivors_catch_a_server_that_shows_clients_different_ones(
    secret: Make, tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        two_faced(patch)
        with pytest.raises(TamperError, match="seed rebuilt for client 4"):  # from mixed shares
            runs.run(secret(FIVE), tmp_path / "unsigned")
        assert failures(tmp_path / "unsigned") == []
        totals.clear()
        runs.run(secret(FIVE, "privacy.consistency=true"), tmp_path / "signed")
    assert len(totals) == 3  # rounds 1, 2 and 4
    refused = {(client, why) for round, _, client, why in failures(tmp_path / "signed") if client != "all"}
    assert {client for client, _ in refused} == {"0", "1", "2", "3", "4"}
    assert all("does not fit the identity" in why for _, why in refused)


def test_a_leaver_cannot_be_subtracted(secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = SecureFederation._count

    def counting(self: SecureFederation, *arguments: Any) -> None:
        count(self, *arguments)
        counted.append(int(self.counts["relation"].sum()))

    monkeypatch.setattr(SecureFederation, "_count", counting)

    def attack(folder: Path, *, forget: bool) -> None:
        """Count over five clients, then tell four of them that the fifth has left."""
        with pytest.raises(Crash):
            runs.run(secret(FIVE), folder, crash_in(1))
        four = "".join((folder / "roster.txt").read_text().splitlines(keepends=True)[:4])
        for path in (folder / "roster.txt", *folder.glob("clients/keys-*/roster.txt")):
            path.write_text(four)
        changed = Experiment.load(folder / "experiment.toml").override(["data.clients=4"])
        (folder / "experiment.toml").write_text(changed.to_toml())
        if forget:
            for path in folder.glob("clients/run-*/client-*/secrets.safetensors"):
                path.unlink()
        runs.resume(folder)

    attack(tmp_path / "careless", forget=True)
    leaver = load_graph(tmp_path / "careless" / "data" / "client-4").num_relations
    assert counted[0] - counted[1] == leaver
    counted.clear()
    with pytest.raises(FederationError, match="0 of 4 clients answered"):
        attack(tmp_path / "guarded", forget=False)
    assert len(counted) == 1
    assert "began with another roster" in str(failures(tmp_path / "guarded"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["privacy.consistency=true", *PLAIN], r"privacy\.consistency: .*\.secure_aggregation = true, or"),
        (["privacy.union=oprf", "privacy.helpers=6"], r"privacy\.helpers: 6 of 5 clients; choose 1 to 5"),
        (["federation.fraction=0.5"], r"federation\.fraction: 0\.5 .* linear system .*\.fraction = 1\.0, or"),
        (["data.clients=2"], r"data\.clients: .* at least 3 clients, not 2"),
        (["data.clients=101"], r"data\.clients: .* more than 100"),
        (["privacy.threshold=6"], r"privacy\.threshold: 6 of 5 clients; choose 3 to 5"),
        (["data.clients=9", "privacy.threshold=4"], r"privacy\.threshold: 4 of 9 clients; choose 5 to 9"),
        (
            ["data.clients=9", "privacy.threshold=6"],
            r"min_holders: 3 with 3 tolerated .*\.min_holders = 5 or",
        ),
        (["federation.weighting=triples"], r"weighting: 'triples' would need .*\.weighting = .holders"),
        (["privacy.secure_aggregation=false"], r"union: 'private' hides nothing .*\.union = .plain"),
        (["privacy.clip=1e9"], "lower the clip"),
    ],
)
def test_settings_that_would_not_protect_are_refused_in_one_line(
    changes: list[str], message: str, out: Path
) -> None:
    experiment = Experiment().override(changes)
    with pytest.raises(SettingError, match=message) as caught:
        check_privacy(experiment, ("relation",))
    assert "\n" not in str(caught.value)
    check_privacy(experiment, ())
    with pytest.raises(SettingError):
        runs.run(experiment, out)
    assert not out.exists()


@pytest.mark.parametrize("clients", [3, 5, 10, 20, 100])
def test_defaults_hold_for_any_number_of_clients(clients: int) -> None:
    experiment = Experiment().override([f"data.clients={clients}"])
    check_privacy(experiment, ("relation",))
    assert experiment.privacy.min_holders - (clients - experiment.privacy.quorum(clients)) >= 2


# Dropouts and bad values.


@pytest.mark.parametrize(
    ("verb", "survivors"),
    [
        ("train", [5, 4, 5, 5]),
        ("consent", [5, 5, 5, 5]),
        ("unmask", [5, 5, 5, 5]),
        ("evaluate", [5, 5, 5, 5]),
        ("share", [5, 5, 4, 5]),
    ],
)
def test_one_client_may_fail_at_any_step(
    verb: str,
    survivors: list[int],
    secret: Make,
    out: Path,
    totals: list[Total],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, verb, {2}, {3 if verb == "share" else 2})
    if verb == "share":  # happens only where somebody was missing before
        failing(monkeypatch, "evaluate", {2}, {2})
    result = runs.run(secret(FIVE, f"privacy.consistency={str(verb == 'consent').lower()}"), out)
    assert [len(total.survivors) for total in totals] == survivors
    assert result.summary["communication"]["rounds"] == 4
    assert all(client == 2 and "coffee" in why for _, _, client, why in failures(out))
    assert failures(out)


def test_too_many_dropouts_leave_the_tables_as_they_were(
    secret: Make, out: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "train", {1, 2}, {2})
    failing(monkeypatch, "unmask", {1, 2}, {3})
    result = runs.run(secret(FIVE), out)
    assert len(totals) == 2  # rounds 1 and 4
    assert result.summary["communication"]["rounds"] == 4
    lost = [(round, phase) for round, phase, client, _ in failures(out) if client == "all"]
    assert lost == [(2, "train"), (3, "train")]


def test_a_run_that_keeps_failing_stops_and_can_go_on(
    secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = secret(FIVE, "federation.rounds=6")
    with monkeypatch.context() as patch:
        failing(patch, "train", {1, 2}, {3, 4, 5, 6})
        with pytest.raises(FederationError, match="resume later"):
            runs.run(experiment, tmp_path / "cut")
    assert json.loads((tmp_path / "cut" / "checkpoint" / "server.json").read_text())["round"] == 4
    assert runs.resume(tmp_path / "cut").summary["communication"]["rounds"] == 6


@pytest.mark.parametrize("verb", ["join", "unite", "advertise", "count", "test"])
def test_what_needs_everybody_stops_cleanly_without_one(
    verb: str, secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = secret("federation.rounds=2")
    with monkeypatch.context() as patch:
        failing(patch, verb, {1}, {0, 2})
        with pytest.raises(
            Exception, match=r"fewer than the threshold|joined|did not (reply|answer)|every client"
        ):
            runs.run(experiment, tmp_path / "cut")
    assert not (tmp_path / "cut" / "summary.json").exists()
    whole = runs.run(experiment, tmp_path / "whole")
    assert runs.resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


def tampering(monkeypatch: pytest.MonkeyPatch, verb: str, letter: str) -> None:
    """Let client 2 send a letter with its last byte changed, in round 3."""
    answer = getattr(SecureParticipant, verb)

    def false(self: SecureParticipant, download: Download) -> Upload:
        upload = answer(self, download)
        if (self.client, download.round) != (2, 3) or letter not in upload.letters:
            return upload
        own = upload.letters[letter]
        return replace(upload, letters={**upload.letters, letter: own[:-2] + bytes([own[-2] ^ 1]) + own[-1:]})

    monkeypatch.setattr(SecureParticipant, verb, false)


def test_a_false_share_is_found_and_named_and_nothing_is_applied(
    secret: Make, tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = secret(FIVE)
    with monkeypatch.context() as patch:
        tampering(patch, "unmask", "reveal")
        with pytest.raises(TamperError, match="share between clients 4 and 2 is wrong"):
            runs.run(experiment, tmp_path / "cut")
    assert len(totals) == 2
    whole = runs.run(experiment, tmp_path / "whole")
    assert runs.resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


def test_a_false_signature_makes_the_next_sum_start_anew(
    secret: Make, out: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    tampering(monkeypatch, "train", "advert")
    runs.run(secret(FIVE), out)
    assert [len(total.survivors) for total in totals] == [5, 5, 5, 5]  # prepared anew in time
    assert "does not fit the identity" in str(failures(out))


def test_simulated_dropouts_keep_the_roster(secret: Make, tmp_path: Path, totals: list[Total]) -> None:
    experiment = secret("data.clients=6", "federation.dropout=0.2", "federation.rounds=6")
    whole = runs.run(experiment, tmp_path / "whole")
    sizes = [len(total.survivors) for total in totals]
    assert min(sizes) in (4, 5)
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(4))
    assert runs.resume(tmp_path / "cut").summary["result_hash"] == whole.summary["result_hash"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_no_numbers_never_leave_a_client(
    value: float, secret: Make, out: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Participant._train

    def spoiling(self: SecureParticipant, round: int) -> None:
        trained(self, round)
        if (self.client, round) == (3, 2):
            self.model.tables["relation"][self.holdings["relation"].local[0], 0] = value

    monkeypatch.setattr(Participant, "_train", spoiling)
    runs.run(secret(FIVE), out)
    assert [len(total.survivors) for total in totals] == [5, 4, 5, 5]
    assert "NaN or infinite" in str(failures(out))


def test_a_client_refuses_to_share_in_the_clear(secret: Make, out: Path, tmp_path: Path) -> None:
    experiment = secret()
    with pytest.raises(Crash):
        runs.run(experiment, out, crash_in(1))
    config = {"partition-id": 1, "data": str(out / "data" / "client-1"), "state": str(tmp_path / "state")}
    worker = Worker(71, experiment.to_json(), {2: config})
    hello = encode(Download(0, facts={"shared": ["relation"]}))
    answer, reason = worker.handle(2, "query.join", "0", hello)
    assert answer is None
    assert "labels in the clear" in reason
    secure = encode(Download(0, facts={"shared": ["relation"], "secure": True}))
    assert "identity.key" in worker.handle(2, "query.join", "0", secure)[1]
    worker.close()
    keys = {"keys": str(out / "clients" / "keys-1")}
    plain = Worker(72, experiment.override(PLAIN).to_json(), {2: {**config, **keys}})
    assert "take 'keys' out" in plain.handle(2, "query.join", "0", hello)[1]
    plain.close()
