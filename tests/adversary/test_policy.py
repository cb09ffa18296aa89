"""A server that asks for more than a client's operator accepts."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedkge.agreement import union_session
from fedkge.client.policy import Policy
from fedkge.crypto import Roster
from fedkge.crypto.union.private import write_opening
from fedkge.crypto.union.table import SALT_SIZE
from fedkge.datasets import mark, write_graph
from fedkge.errors import DataError, RefusedError
from fedkge.exchange import Download
from fedkge.experiment import Experiment
from tests.adversary.deployment import Deployment, small

HELLO = {"strategy": "FedR", "shared": ["relation"], "verbs": [], "secure": True, "fresh": True}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Five clients, each with the policy that `fedkge keys new` wrote; look, and change nothing."""
    return Deployment(tmp_path_factory.mktemp("deployment"), small())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("privacy.union=plain", 'unions = ["private", "oprf"]'),
        ("privacy.union=hashed", 'unions = ["private", "oprf"]'),
        ("privacy.threshold=3", "colluders = 1"),
        ("privacy.min_holders=1", "min_holders = 3"),
        ("federation.rounds=1001", "rounds = 1000"),
        ("federation.strategy=Local", "own_scores = false"),
    ],
)
def test_a_server_does_not_dictate_policy(
    change: str, line: str, deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding 6: a node with keys took part whatever privacy.union, threshold and min_holders said."""
    asked = small(change)
    before = deployment.files()
    with caplog.at_level(logging.WARNING, "fedkge.client.app"):
        reason = deployment.ask(0, "query.join", Download(0, metadata=HELLO), experiment=asked)
    assert f"the client's policy has `{line}`" in str(reason)
    assert f"the client's policy has `{line}`" in caplog.text  # the operator sees it too
    assert deployment.files() == before


def test_a_server_does_not_raise_the_query_budget(deployment: Deployment) -> None:
    """Finding 6: query_budget = 100000 was accepted."""
    asked = small("privacy.union=oprf", "privacy.query_budget=100000")
    reason = deployment.ask(0, "query.join", Download(0, metadata=HELLO), experiment=asked)
    assert "`query_budget = 16384`, and the run has privacy.query_budget = 100000" in str(reason)


def test_a_server_does_not_turn_secure_aggregation_off(deployment: Deployment) -> None:
    asked = small("privacy.union=plain", "privacy.secure_aggregation=false")
    reason = deployment.ask(0, "query.join", Download(0, metadata=HELLO), experiment=asked)
    assert "privacy.secure_aggregation = false" in str(reason)


@pytest.mark.parametrize("kind", ["evaluate", "evaluate.test", "train", "query.count"])
def test_nothing_is_answered_before_the_union(kind: str, deployment: Deployment) -> None:
    """Finding 6: `evaluate` before a union returned one client's own scores, in the clear."""
    download = Download(1, metadata={"keep": [], "settled": 0, "best": 0})
    deployment.ask(0, kind, download)  # the secret of its own rows is drawn
    before = deployment.files()
    reason = deployment.ask(0, kind, download)
    assert "nothing is answered before the union" in str(reason)
    assert deployment.files() == before


def test_a_run_that_its_policy_accepts_is_joined(deployment: Deployment) -> None:
    answer = deployment.ask(0, "query.join", Download(0, metadata=HELLO))
    assert not isinstance(answer, str), answer
    assert answer.metadata["parameters"] == {"relation": ["table", 8]}


@pytest.mark.parametrize("keys", [True, False])
def test_confidential_statements_are_not_trained_on_without_noise(
    keys: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding 13: a party's marks were ignored if the run had no [privacy.dp], and its log did not tell."""
    deployment = Deployment(tmp_path, small())
    write_graph(tmp_path / "data-0", mark(deployment.graphs[0], "0.5", 0))
    if not keys:
        deployment.nodes = lambda **_: _without_keys(Deployment.nodes(deployment))  # type: ignore[method-assign]
    changes = [] if keys else ["privacy.union=plain", "privacy.secure_aggregation=false"]

    def reason(*more: str) -> str:
        return str(
            deployment.ask(0, "query.join", Download(0, metadata=HELLO), experiment=small(*changes, *more))
        )

    assert '`confidential = "guaranteed"`, and the run has privacy.dp.mode = "off"' in reason()
    assert '`confidential = "guaranteed"`' in caplog.text
    assert 'privacy.dp.mode = "paper"' in reason("privacy.dp.mode=paper")
    assert "without noise" in reason("privacy.dp.sigma=1.0", "privacy.dp.validation=all")
    assert reason("privacy.dp.sigma=1.0").startswith("Upload(")


def _without_keys(nodes: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {node: {k: v for k, v in config.items() if k != "keys"} for node, config in nodes.items()}


def test_a_message_larger_than_the_policy_s_is_not_read(tmp_path: Path) -> None:
    """Finding 11: nothing bounded what a server may send."""
    deployment = Deployment(tmp_path, small())
    (deployment.keys(0) / "policy.toml").write_text("message_mb = 1\n")
    large = Download(0, metadata=HELLO, protocol={"union relation": bytes(2**20)})
    assert "`message_mb = 1`" in str(deployment.ask(0, "query.join", large))


@pytest.mark.parametrize(("cells", "line"), [(2**21 + 4, ""), (2**22, ""), (3000, "max_cells = 2999")])
def test_a_table_with_more_cells_than_the_policy_s_is_not_filled(
    cells: int, line: str, tmp_path: Path
) -> None:
    """Finding 11: a request of 2^24 cells took a client to 1.2 GB, and its operator had no say in it."""
    deployment = Deployment(tmp_path, small())
    if line:
        (deployment.keys(0) / "policy.toml").write_text(f"{line}\n")
    before = deployment.files()

    def asked(cells: int) -> str:
        session = union_session(deployment.roster, "trial", "relation", small().privacy)
        shape = SimpleNamespace(salt=bytes(SALT_SIZE), num_cells=cells, num_positions=4)
        opening = write_opening(session.id, 0, shape)  # type: ignore[arg-type]  # a shape that is checked later
        download = Download(0, metadata=HELLO, protocol={"union relation": opening})
        return str(deployment.ask(0, "query.join", download, "trial"))

    assert f"`{line or 'max_cells = 2097152'}`" in asked(cells)
    changed = {name for name, content in deployment.files().items() if before.get(name) != content}
    assert all("secret" in name for name in changed)  # of its own rows, drawn when it first came
    assert asked(1024).startswith("Upload(")  # within the line


def roster_of(clients: int) -> Roster:
    return Roster.of(number.to_bytes(32, "little") for number in range(clients))


@pytest.mark.parametrize(
    ("policy", "clients", "change", "line"),
    [
        ({"clients": 6}, 5, "seed=1", "clients = 6"),
        ({"threshold": 5}, 5, "seed=1", "threshold = 5"),
        ({"colluders": 2}, 20, "privacy.threshold=11", "colluders = 2"),
        ({"colluders": 2}, 5, "privacy.threshold=4", "colluders = 2"),  # a row of 3 covers none of 2 + 2
        ({"roster": "00" * 32}, 5, "seed=1", f'roster = "{"00" * 32}"'),
    ],
)
def test_each_line_about_sums_refuses(policy: dict[str, Any], clients: int, change: str, line: str) -> None:
    privacy, roster = Experiment().override([change]).privacy, roster_of(clients)
    with pytest.raises(RefusedError) as refusal:
        Policy(**policy).check_sums(privacy, roster)
    assert f"`{line}`" in str(refusal.value)
    Policy().check_sums(Experiment().privacy, roster)
    Policy(roster=hashlib.sha256(roster.to_text().encode()).hexdigest()).check_sums(
        Experiment().privacy, roster
    )


@pytest.mark.parametrize(
    ("policy", "changes", "line"),
    [
        ({"sigma": 2.0}, ["privacy.dp.sigma=1.0"], "sigma = 2.0"),
        ({"epsilon": 1.0}, ["privacy.dp.sigma=1.0"], "epsilon = 1.0"),
        ({"epsilon": 1.0}, ["privacy.dp.budget=3.0"], "epsilon = 1.0"),
        ({"epsilon": 1.0}, ["privacy.dp.target_epsilon=3.0"], "epsilon = 1.0"),
        ({"delta": 1e-5}, ["privacy.dp.delta=0.001"], "delta = 1e-05"),
        ({}, ["privacy.dp.delta=0.5"], "delta = null"),
    ],
)
def test_each_line_about_confidential_triples_refuses(
    policy: dict[str, Any], changes: list[str], line: str, deployment: Deployment
) -> None:
    graph = mark(deployment.graphs[0], "0.5", 0)
    with pytest.raises(RefusedError) as refusal:
        Policy(**policy).check_data(graph, Experiment().override(changes).privacy.dp)
    assert f"`{line}`" in str(refusal.value)
    Policy(**policy).check_data(deployment.graphs[0], Experiment().privacy.dp)  # nothing is marked
    good = ["privacy.dp.sigma=4.0", "privacy.dp.budget=0.5", "privacy.dp.delta=1e-6"]
    Policy(**policy).check_data(graph, Experiment().override(good).privacy.dp)


def test_other_lines_refuse() -> None:
    with pytest.raises(RefusedError, match=r'`strategies = \["FedR"\]`'):
        Policy(strategies=["FedR"]).check_experiment(small("federation.strategy=FedE"))
    with pytest.raises(RefusedError, match="`table_rows = 10`, and the run has 11 rows of entity"):
        Policy(table_rows=10).check_table("entity", 11)
    with pytest.raises(RefusedError, match=r'`runs = \["a"\]`'):
        Policy(runs=["a"]).check_run("b", [], [])
    Policy(runs=["a"]).check_run("a", ["c"], [])
    Policy(runs=["a"]).check_run("b", ["a"], ["b"])


def test_the_written_policy_is_the_default_and_explains_itself(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(Policy().to_toml())
    assert Policy.load(tmp_path) == Policy() == Policy.load(tmp_path / "nowhere")
    text = (tmp_path / "policy.toml").read_text()
    for key, field in Policy.model_fields.items():
        assert f"# {field.description}\n" in text
        assert f"\n{key} = " in text or f"\n# {key} = " in text
    (tmp_path / "policy.toml").write_text('unoins = ["plain"]\n')
    with pytest.raises(DataError, match=r"policy\.toml: policy\.unoins: unknown key; did you mean 'unions'"):
        Policy.load(tmp_path)
    (tmp_path / "policy.toml").write_text("unions = [\n")
    with pytest.raises(DataError, match="mend that line of the policy"):
        Policy.load(tmp_path)
