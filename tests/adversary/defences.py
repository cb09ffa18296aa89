"""Each defence, the code that makes it, and the attacks that succeed as soon as that code is taken away.

As a pytest plugin it runs the named tests without one defence and writes down how each failed:

    FEDKGE_WITHOUT=journal FEDKGE_OUTCOMES=out.json python -m pytest -p tests.adversary.defences TEST
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedkge.agreement import _SCALARS, Acted
from fedkge.client.holdings import RowSource
from fedkge.client.journal_file import MARK, JournalFile
from fedkge.client.participant import Participant
from fedkge.client.policy import Policy
from fedkge.client.secrets import PastSums, Secrets
from fedkge.client.secure import SecureParticipant, _ranking
from fedkge.covers import veil_key
from fedkge.crypto import (
    DIGEST_WORDS,
    UNBOUND,
    Journal,
    Plan,
    SecureAggregationClient,
    SecureAggregationServer,
)
from fedkge.crypto import Session as CryptoSession
from fedkge.crypto.union import private
from fedkge.crypto.wire import SERVER, Kind, Reader
from fedkge.exchange import Download, Upload
from fedkge.experiment import PrivacySettings
from fedkge.metrics import RANKING
from fedkge.server import messenger
from fedkge.server.messenger import Reply
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sums import Final

__all__ = ["DEFENCES", "Defence"]

ROOT = Path(__file__).parents[2]
Patch = pytest.MonkeyPatch
Remove = Callable[[Patch], None]


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of a check."""


@dataclass(frozen=True)
class Defence:
    """A guarantee, how its code is taken away, and the tests that must then fail."""

    finding: str  # of the review, in SECURITY.md's order; 0: found later
    guarantee: str
    remove: Remove
    tests: tuple[str, ...]
    ends: tuple[str, ...] = field(default=())  # exceptions, where ending the run is what the attacker wants


def without(owner: Any, *names: str) -> Remove:
    """Checks that raise or return nothing are taken out one by one."""

    def remove(patch: Patch) -> None:
        for name in names:
            patch.setattr(owner, name, _nothing)

    return remove


def together(*removes: Remove) -> Remove:
    """Where one defence stands behind another, an attack succeeds without both."""

    def remove(patch: Patch) -> None:
        for each in removes:
            each(patch)

    return remove


# Initial rows, masks and what they are bound to.


def rows_from_the_seed(patch: Patch) -> None:
    of_seed = RowSource.of_seed
    patch.setattr("fedkge.client.secure.simulated_source", lambda privacy, seed, name: of_seed(seed, name))
    patch.setattr(SecureParticipant, "row_source", Participant.row_source)


def masks_unbound(patch: Patch) -> None:
    for side in ("client", "server"):
        patch.setattr(f"fedkge.crypto.aggregation.{side}.bound_key", lambda key, binding: key)


def one_binding_for_all(patch: Patch) -> None:
    patch.setattr(Acted, "binding", lambda *_: UNBOUND)


def deliveries_not_compared(patch: Patch) -> None:
    def read(self: SecureAggregationClient, request: bytes) -> tuple[int, ...]:
        return self._read_survivors(Reader(request, Kind.SURVIVORS, self.session.id, SERVER))

    patch.setattr(SecureAggregationClient, "_read_request", read)


def lists_not_signed(patch: Patch) -> None:
    patch.setattr(CryptoSession, "needs_consent", lambda self, *_: self.signed)


def rows_of_any_size(patch: Patch) -> None:
    patch.setattr("fedkge.exchange.LARGEST", float("inf"))


# What a client remembers.


def masked_again(patch: Patch) -> None:
    """The journal notes what is masked, and refuses nothing."""

    def mask(self: Journal, session: Any, binding: bytes) -> None:
        self._opened[session.id] = True
        self._bound[session.label] = binding

    patch.setattr(Journal, "mask", mask)


def opened_again(patch: Patch) -> None:
    def open_(self: Journal, session: Any) -> None:
        self._opened.setdefault(session.id, False)

    patch.setattr(Journal, "open", open_)


def unmasked_for_others(patch: Patch) -> None:
    def reveal(self: Journal, session: Any, survivors: Any) -> None:
        self._revealed[session.label] = tuple(survivors)

    patch.setattr(Journal, "reveal", reveal)


def any_step(patch: Patch) -> None:
    def mask(self: PastSums, round: int, digest: str) -> None:
        self.masked[str(round)] = digest

    patch.setattr(PastSums, "mask", mask)


def union_forgotten(patch: Patch) -> None:
    """What the first step settled is not kept."""
    patch.setattr(Secrets, "tables", property(lambda self: b"", _nothing), raising=False)


def old_journals(patch: Patch) -> None:
    write = JournalFile.write

    def unmarked(self: JournalFile, entries: Any) -> None:
        write(self, entries)
        (self.folder / MARK).unlink()

    patch.setattr(JournalFile, "write", unmarked)


def journals_unlocked(patch: Patch) -> None:
    free = SimpleNamespace(flock=_nothing, LOCK_EX=0, LOCK_NB=0)
    patch.setattr("fedkge.client.kept_file.fcntl", free)


def readable_secrets(patch: Patch) -> None:
    for module in ("keyring", "journal_file"):
        patch.setattr(f"fedkge.client.{module}.require_private", _nothing)


def any_name_of_a_run(patch: Patch) -> None:
    patch.setattr("fedkge.client.app.run_name", lambda experiment, config: str(config["run"]))


def state_before_the_answer(patch: Patch) -> None:
    """A step is written down, and then it turns out that it is refused."""
    answer = SecureParticipant._answer

    def early(self: Any, download: Any, question: str, step: Any, commit: Any = _nothing) -> Upload:
        commit()
        return answer(self, download, question, step)

    patch.setattr(SecureParticipant, "_answer", early)


# Scores.


def scores_before_the_union(patch: Patch) -> None:
    for verb in ("evaluate", "test"):
        secure, plain = getattr(SecureParticipant, verb), getattr(Participant, verb)

        def answer(self: Any, download: Download, secure: Any = secure, plain: Any = plain) -> Upload:
            upload: Upload = secure(self, download) if self.tables else plain(self, download)
            return upload

        patch.setattr(SecureParticipant, verb, answer)


def validation_in_the_test(patch: Patch) -> None:
    """Both splits in one sum, over everybody."""
    half = RANKING.num_words

    def test(self: SecureParticipant, download: Download) -> Upload:
        said = Participant.test(self, download).metadata
        digest = np.frombuffer(bytes.fromhex(said["digest"]), dtype="<u4").astype(np.uint32)
        words = np.concatenate([_ranking(said, "valid"), _ranking(said, "test"), digest])
        return self._masked(download, "test", words, lambda: self._keep_scores(said))

    def final(self: SecureSums, round: int, best: int) -> Final:
        from fedkge.server.sums.secure import _scores
        from fedkge.server.sums.sessions import Sum

        ask, clients = Download(round, metadata={"best": best}), self.messenger.clients
        total = self.sessions.sum(Sum("test", round), clients, ask, "evaluate.test", "test")
        return Final(_scores(total.words[half : 2 * half], total), {}, total.metadata)

    patch.setitem(_SCALARS, "test", 2 * half + DIGEST_WORDS)
    patch.setattr(SecureParticipant, "test", test)
    patch.setattr(SecureSums, "final", final)


def tests_over_some(patch: Patch) -> None:
    session = Plan.session

    def like_others(self: Plan, purpose: str, *named: Any) -> CryptoSession:
        opened = session(self, purpose, *named)
        return replace(opened, threshold=self.threshold) if purpose == "test" else opened

    patch.setattr(Plan, "session", like_others)


# Policy, covers, sizes.


def tables_of_any_size(patch: Patch) -> None:
    read = private.read_opening
    unlimited = {"max_cells": 2**32}
    patch.setattr(private, "read_opening", lambda message, s: read(message, replace(s, **unlimited)))


def rows_unveiled(patch: Patch) -> None:
    patch.setattr("fedkge.client.secure.veil", _nothing)


def veils_always_lifted(patch: Patch) -> None:
    def unveil(self: SecureParticipant, session: Any, survivors: int) -> dict[str, bytes]:
        return {"veil": veil_key(self.secrets.keyring.identity, session.id)}

    patch.setattr(SecureParticipant, "_unveil", unveil)


def claims_believed(patch: Patch) -> None:
    for module in ("client.secure", "covers"):
        patch.setattr(f"fedkge.{module}.check_claimed", _nothing)


def colluders_not_counted(patch: Patch) -> None:
    patch.setattr(PrivacySettings, "holders", property(lambda self: self.min_holders))


def any_number(patch: Patch) -> None:
    patch.setattr("fedkge.exchange._whole", lambda number, most=0: number)


# The server.


def replies_by_sender(patch: Patch) -> None:
    def answers(reply: Any, message: Any) -> bool:
        return bool(reply.metadata.src_node_id == message.metadata.dst_node_id)

    patch.setattr(messenger, "_answers", answers)


def replies_unread(patch: Patch) -> None:
    whole = messenger._read

    def read(reply: Any, *rest: Any) -> Reply:
        if reply.has_error():
            return whole(reply, *rest)
        raw = reply.content["fedkge"]["payload"]
        return Reply(raw, messenger.decode(raw, Upload))

    patch.setattr(messenger, "_read", read)


def shares_not_mended(patch: Patch) -> None:
    patch.setattr(SecureAggregationServer, "_mend", _nothing)


def any_program(patch: Patch) -> None:
    patch.setattr("fedkge.client.node._REFUSED", ())


def any_bundle(patch: Patch) -> None:
    patch.setattr("fedkge.client.node._OUR_APP", "other/app")


def blank_nodes_shared(patch: Patch) -> None:
    for module in ("client.holdings", "client.participant"):
        patch.setattr(f"fedkge.{module}.common_rows", lambda labels: np.arange(len(labels)))


def blank_nodes_of_nobody(patch: Patch) -> None:
    patch.setattr("fedkge.datasets.split.owned_labels", lambda labels, client: tuple(labels))


def labels_as_spelt(patch: Patch) -> None:
    patch.setattr(sys.modules["fedkge.datasets.load"], "normalised", lambda graph: graph)


BOUND = "tests/adversary/test_bound_sums.py::"
COVERS = "tests/adversary/test_covers.py::"
DELIVERY = "tests/adversary/test_selective_delivery.py::"
EXCLUSION = "tests/adversary/test_exclusion.py::"
JOURNAL = "tests/adversary/test_journal.py::"
MESSAGES = "tests/adversary/test_messages.py::"
NAMING = "tests/adversary/test_naming.py::"
POLICY = "tests/adversary/test_policy.py::"
REPLIES = "tests/adversary/test_hostile_replies.py::"
SCORES = "tests/adversary/test_scores.py::"
STATE = "tests/adversary/test_state.py::"

DEFENCES: dict[str, Defence] = {
    "initial rows from a key": Defence(
        "1",
        "the server names no pseudonym by its first step",
        rows_from_the_seed,
        (
            f"{NAMING}test_rows_from_the_seed_name_pseudonyms_and_rows_from_the_clients_key_do_not[TransE]",
            f"{NAMING}test_deployed_clients_start_alike_from_what_the_server_has_not[private]",
        ),
    ),
    "bound masks": Defence(
        "2",
        "masks of clients who acted on different things do not cancel",
        masks_unbound,
        (f"{BOUND}test_the_masks_of_clients_who_acted_on_the_same_cancel_and_no_others",),
    ),
    "the binding": Defence(
        "2",
        "what a client acts on is in its binding",
        one_binding_for_all,
        (
            f"{BOUND}test_a_binding_follows_from_all_that_was_said",
            f"{BOUND}test_rows_that_only_the_victim_can_train_on_expose_nobody",
            f"{BOUND}test_a_lost_broadcast_puts_out_the_client_that_missed_it",
        ),
    ),
    "compared signatures": Defence(
        "2, 5",
        "clients unmask only for those who signed the same binding and the same deliveries",
        deliveries_not_compared,
        (
            f"{BOUND}test_clients_unmask_nobody_who_signed_another_binding",
            f"{DELIVERY}test_real_clients_do_not_answer_the_directed_attack",
        ),
    ),
    "bounded rows": Defence(
        "2",
        "no broadcast is so large that float32 absorbs a step",
        rows_of_any_size,
        (f"{MESSAGES}test_rows_beyond_what_float32_can_add_to_are_refused",),
    ),
    "one sum per update": Defence(
        "3",
        "an update is summed in the round that made it",
        without(SecureParticipant, "_check_own_round"),
        (f"{BOUND}test_an_update_is_not_summed_again_under_the_next_round",),
    ),
    "one step per round": Defence(
        "3",
        "a round has one step, whatever rows the server sends",
        together(any_step, masked_again),
        (f"{STATE}test_a_round_has_one_step",),
    ),
    "one binding per round": Defence(
        "3",
        "a round and purpose is masked after the same messages alone",
        masked_again,
        (f"{BOUND}test_one_round_and_purpose_is_masked_for_one_binding_alone",),
    ),
    "one validation per step": Defence(
        "3",
        "scores of the same rows go into one sum",
        without(PastSums, "score"),
        (f"{STATE}test_rows_are_scored_in_one_sum[True]",),
    ),
    "tests over everybody": Defence(
        "3",
        "a test is over all clients, so that two of them differ by nobody",
        tests_over_some,
        (f"{SCORES}test_a_test_is_over_all_clients_or_none",),
    ),
    "no validation in the test": Defence(
        "0",
        "validation scores are summed once",
        validation_in_the_test,
        (f"{SCORES}test_the_final_test_adds_up_no_validation_scores",),
    ),
    "remembered survivors": Defence(
        "3",
        "the server cannot deny whom a sum went over",
        without(SecureParticipant, "_check_last"),
        (f"{BOUND}test_the_server_cannot_deny_whom_a_sum_went_over",),
    ),
    "the journal": Defence(
        "4",
        "one round is unmasked for one set of survivors",
        unmasked_for_others,
        (f"{JOURNAL}test_a_run_that_is_started_twice_reveals_no_client",),
    ),
    "sessions opened once": Defence(
        "4",
        "a session that the journal knows is refused, and a second vector under one mask",
        together(opened_again, masked_again),
        (
            "tests/crypto/test_aggregation.py::test_a_replayed_session_is_refused",
            "tests/crypto/test_aggregation.py::test_masking_again_from_a_stored_state_raises",
        ),
    ),
    "one union per run": Defence(
        "4, 9",
        "a run goes on with the union and the shared rows that it began with",
        together(union_forgotten, any_step, masked_again),
        (
            f"{JOURNAL}test_a_server_that_forgot_a_run_cannot_begin_it_anew",
            f"{STATE}test_a_second_join_forgets_neither_the_union_nor_what_is_shared",
        ),
    ),
    "consent to runs": Defence(
        "4",
        "a further run needs the operator's consent",
        without(Policy, "check_run"),
        (f"{JOURNAL}test_another_run_over_the_same_identity_needs_consent",),
    ),
    "the journal's mark": Defence(
        "4",
        "a journal that was put back is noticed",
        old_journals,
        (f"{JOURNAL}test_a_lost_or_old_journal_is_noticed",),
    ),
    "the journal's lock": Defence(
        "4",
        "one process at a time uses an identity",
        journals_unlocked,
        (f"{JOURNAL}test_one_process_at_a_time_uses_a_journal",),
    ),
    "names of runs": Defence(
        "4",
        "the name of a run is no path",
        any_name_of_a_run,
        (f"{JOURNAL}test_a_run_s_name_is_no_path",),
    ),
    "signed lists": Defence(
        "5",
        "survivors are signed where lists could differ",
        lists_not_signed,
        (f"{DELIVERY}test_the_model_answers_as_the_clients_do",),
    ),
    "the policy": Defence(
        "6",
        "the node's operator decides about unions, thresholds, holders, rounds and strategies",
        without(Policy, "check_experiment", "check_sums"),
        (
            f"{POLICY}test_a_server_does_not_dictate_policy",
            f"{POLICY}test_a_server_does_not_raise_the_query_budget",
        ),
    ),
    "keys mean secure sums": Defence(
        "6",
        "a node with keys shows nothing in the open",
        lambda patch: patch.setattr("fedkge.client.app._check_keys", _nothing),
        (f"{POLICY}test_a_server_does_not_turn_secure_aggregation_off",),
    ),
    "no scores before the union": Defence(
        "6",
        "nothing is answered before the union",
        scores_before_the_union,
        (f"{POLICY}test_nothing_is_answered_before_the_union",),
    ),
    "covers of claimed rows": Defence(
        "8",
        "a client shares no row that is said to have too few holders",
        claims_believed,
        (
            f"{COVERS}test_a_client_shares_no_row_with_fewer_claimed_holders_than_it_needs",
            f"{COVERS}test_a_server_that_shares_rows_of_too_few_is_refused_by_clients",
        ),
    ),
    "counted colluders": Defence(
        "8",
        "two honest clients hold each shared row, besides the assumed colluders",
        colluders_not_counted,
        (f"{COVERS}test_no_dropouts_and_colluders_leave_a_row_with_one_honest_holder",),
    ),
    "veils": Defence(
        "8",
        "rows that dropouts would lay bare are hidden from the server",
        rows_unveiled,
        (f"{COVERS}test_a_dropout_holds_back_the_rows_that_it_would_lay_bare",),
    ),
    "keys of veils": Defence(
        "8",
        "the key of a veil leaves only if enough clients survived",
        veils_always_lifted,
        (
            f"{COVERS}test_a_dropout_holds_back_the_rows_that_it_would_lay_bare",
            f"{COVERS}test_a_server_that_lists_a_dropout_as_present_gets_no_key_of_the_veil",
        ),
    ),
    "read replies": Defence(
        "10",
        "a reply that is no upload of its sender puts out its sender alone",
        replies_unread,
        (f"{REPLIES}test_a_hostile_reply_excludes_its_sender_alone",),
        ends=("FederationError",),
    ),
    "mended sums": Defence(
        "10",
        "a false share is named, and the sum is made without it",
        shares_not_mended,
        (
            "tests/crypto/test_malicious.py::"
            "test_as_many_false_revealers_as_shares_to_spare_are_named_and_the_sum_is_made",
            f"{EXCLUSION}test_rubbish_in_a_round_puts_out_who_sent_it[unmask-reveal-unseen4]",
        ),
        ends=("TamperError",),
    ),
    "bounded messages": Defence(
        "11",
        "a message larger than the policy's is not read",
        without(Policy, "check_message"),
        (f"{POLICY}test_a_message_larger_than_the_policy_s_is_not_read",),
    ),
    "bounded tables": Defence(
        "11",
        "no union has a client fill a table beyond the policy's",
        tables_of_any_size,
        (f"{POLICY}test_a_table_with_more_cells_than_the_policy_s_is_not_filled",),
    ),
    "checked headers": Defence(
        "11",
        "numbers of a header are whole and bounded",
        any_number,
        (f"{MESSAGES}test_headers_that_lie_are_refused",),
    ),
    "checked requests": Defence(
        "11",
        "whatever a client is asked, it refuses with an error of fedkge",
        lambda patch: patch.setattr("fedkge.client.app.check_request", _nothing),
        (f"{MESSAGES}test_clients_in_every_state_refuse_changed_messages",),
    ),
    "private files": Defence(
        "11",
        "secrets that others can read are refused",
        readable_secrets,
        (f"{JOURNAL}test_secrets_that_others_can_read_are_refused",),
    ),
    "refused steps": Defence(
        "9, 11",
        "a refused step changes nothing",
        state_before_the_answer,
        (f"{STATE}test_refused_steps_change_nothing",),
    ),
    "synced files": Defence(
        "11",
        "what must outlive a power cut is on the disk before an answer leaves",
        lambda patch: patch.setattr("fedkge.storage.sync", _nothing),
        ("tests/client/test_keyring.py::test_what_is_durable_is_on_the_disk_before_it_takes_its_place",),
    ),
    "clients go back": Defence(
        "11",
        "after a power cut all go on from the last checkpoint, to the same result",
        without(Participant, "return_to"),
        (f"{STATE}test_a_power_cut_at_any_point_costs_nothing[3]",),
        ends=("FederationError",),
    ),
    "installed programs": Defence(
        "12",
        "a node starts no program of Flower's for a run",
        any_program,
        ("tests/client/test_node.py::test_a_supernode_finds_our_programs_before_its_own",),
    ),
    "installed code": Defence(
        "12",
        "a node answers no other bundle",
        any_bundle,
        ("tests/client/test_node.py::test_anything_else_is_refused",),
    ),
    "confidential triples": Defence(
        "13",
        "confidential triples are not trained on without noise",
        without(Policy, "check_data"),
        (f"{POLICY}test_confidential_statements_are_not_trained_on_without_noise[True]",),
    ),
    "replies by message": Defence(
        "13",
        "what the SuperLink says of a node that is away counts for that node",
        replies_by_sender,
        (f"{REPLIES}test_a_hostile_reply_excludes_its_sender_alone",),
    ),
    "blank nodes at home": Defence(
        "14",
        "blank nodes are in no union",
        blank_nodes_shared,
        ("tests/adversary/test_blank_nodes.py::test_blank_nodes_stay_at_home[changes1]",),
    ),
    "blank nodes apart": Defence(
        "14",
        "blank nodes of two parties are two things",
        blank_nodes_of_nobody,
        ("tests/adversary/test_blank_nodes.py::test_patients_of_three_hospitals_are_not_twelve",),
    ),
    "one spelling": Defence(
        "14",
        "two spellings of a label are one",
        labels_as_spelt,
        ("tests/datasets/test_labels.py::test_two_spellings_become_one_entity_and_their_triples_one",),
    ),
}


# The plugin.

_outcomes: list[dict[str, Any]] = []


def pytest_configure() -> None:
    """Take the defence away before any test module is imported."""
    if "FEDKGE_WITHOUT" in os.environ:
        DEFENCES[os.environ["FEDKGE_WITHOUT"]].remove(pytest.MonkeyPatch())


def pytest_exception_interact(
    node: Any, call: pytest.CallInfo[Any], report: pytest.TestReport | pytest.CollectReport
) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    _outcomes.append(
        {
            "test": node.nodeid,
            "when": call.when,
            "raised": call.excinfo.typename if call.excinfo else "",
            "inherits": [kind.__name__ for kind in call.excinfo.type.__mro__] if call.excinfo else [],
            "where": str(crash.path) if crash else "",
            "message": str(crash.message)[:2000] if crash else str(report.longrepr)[-2000:],
        }
    )


def pytest_sessionfinish() -> None:
    if "FEDKGE_OUTCOMES" in os.environ:
        Path(os.environ["FEDKGE_OUTCOMES"]).write_text(json.dumps(_outcomes), encoding="utf-8")
