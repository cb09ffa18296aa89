"""Reports of real runs: finished, cut, attacked, private; and what is no run."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import t as student

from fedkge.attacks.findings import worst
from fedkge.errors import InputError
from fedkge.simulations import report
from fedkge.simulations.report import write_report
from fedkge.simulations.report.charts import curves
from fedkge.simulations.report.charts.bars import Bar, BarChart
from fedkge.simulations.report.charts.drawing import WIDTH
from fedkge.simulations.report.charts.lines import NUM_COLOURS
from fedkge.simulations.report.page import Figure
from fedkge.simulations.runs.rows import row_of
from fedkge.simulations.runs.run_folder import RunFolder
from tests.simulations.report.conftest import Seen
from tests.simulations.test_data_commands import fedkge

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
FINDINGS = """\
attack,protocol,view,adversary,granted,leak_ratio,target,regime,metric,value,low,high,baseline,count,note
reconstruction,paper,uploads,server + client 0,,1.0,1,,ERR,0.97,0.9,0.99,,117,overlap alone
reconstruction,rigorous,uploads,server + client 0,,1.0,1,true pairs,recall,0.25,0.2,0.3,0.01,1279,
reconstruction,rigorous,uploads,server + client 0,,1.0,1,true pairs,precision,1.0,0.3,1.0,,3,
reconstruction,rigorous,uploads,server + client 0,,1.0,2,true pairs,recall,0.31,0.25,0.4,0.01,1279,
reconstruction,rigorous,rows,server,LEE,0.0,2,,entity recall,0.8,0.7,0.9,0.01,100,
membership,rigorous,uploads,server,,0.0,1,,AUC,0.55,0.45,0.65,0.5,100,
reconstruction,rigorous,uploads,server,,0.0,0,,recall,not possible,,,,,no client colludes
"""


def seen(folder: Path) -> Seen:
    return Seen(write_report([folder]).read_text(encoding="utf-8"))


def change_summary(folder: Path, **changes: object) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    for path, value in changes.items():
        *sections, key = path.split("__")
        target = summary
        for section in sections:
            target = target[section]
        target[key] = value
    (folder / "summary.json").write_text(json.dumps(summary))


def test_a_run_leaves_a_report_that_stands_alone(finished: Path) -> None:
    html = (finished / "report.html").read_text(encoding="utf-8")
    page = Seen(html)
    assert page.tags["h1"] == 1
    assert page.tags["article"] == 3
    assert page.tags["figure"] == 5  # MRR, loss, bytes, phases, clients
    assert not page.tags.keys() & {"script", "link", "img", "iframe", "object", "a"}
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert "://" not in html
    assert "url(" not in html
    assert "@import" not in html
    drawings = html.count(f'<svg viewBox="0 0 {WIDTH:g} ')
    assert drawings == page.tags["figure"]
    assert html.count('role="img"') == html.count("<desc>") == drawings
    assert len(html) < 100_000


def test_the_three_answers_are_those_of_the_summary(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    text = seen(finished).text
    test, cost = summary["utility"]["test"], summary["communication"]
    assert f"{test['mrr']['value']:.3f} test MRR" in text
    low, high = test["mrr"]["interval"]
    assert f"95 % interval {low:.3f}–{high:.3f}" in text
    assert f"{(cost['bytes_up'] + cost['bytes_down']) / 1000:.1f} kB in 4 rounds".replace(".0 ", " ") in text
    assert "MRR 0.9 was never reached" in text
    assert "? not attacked The server saw every client's shared rows." in text
    for line in summary["privacy"]["what_the_server_learned"]:
        assert line in text
    assert summary["result_hash"] in text
    assert "3 clients hold UMLS among them" in text
    assert "With FedE, they share entity rows." in text


def failures_by_client(run: RunFolder) -> Figure | None:
    """A chart of one's own: a function of a run, and a line in CHARTS."""
    counts = Counter(row["client"] for row in run.failures)
    bars = [Bar(f"client {client}", count) for client, count in counts.items()]
    return Figure.of(BarChart("Answers that did not come", bars)) if bars else None


def test_a_chart_is_a_function_and_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "CHARTS", [*curves.CHARTS, failures_by_client])
    assert seen(folder).tags["figure"] == 5  # nothing failed: no chart
    with (folder / "failures.csv").open("a", newline="") as file:
        csv.writer(file).writerow((2, "train", 1, "out of memory"))
    page = seen(folder)
    assert page.tags["figure"] == 6
    assert "Answers that did not come" in page.text


def test_what_is_read_is_what_was_written(finished: Path) -> None:
    run = RunFolder.read(finished)
    messages, metrics = pd.read_csv(finished / "messages.csv"), pd.read_csv(finished / "metrics.csv")
    assert run.bytes_total == messages["bytes"].sum()
    by_round = messages[messages["direction"] == "up"].groupby("round")["bytes"].sum().cumsum()
    assert run.bytes_by_round("up") == list(by_round.items())
    valid = metrics.query("split == 'valid' and metric == 'mrr' and client == '1'")
    last = valid.groupby("round")["value"].last()
    assert run.curve("valid", "mrr")["1"] == list(last.items())
    assert list(run.curve("train", "loss")) == ["0", "1", "2"]


def test_names_are_text_whatever_they_say(folder: Path) -> None:
    toml = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(toml.replace('"UMLS"', json.dumps(EVIL)))
    with (folder / "metrics.csv").open("a", newline="") as file:
        csv.writer(file).writerow((2, EVIL, "valid", "mrr", 0.5))
    with (folder / "failures.csv").open("a", newline="") as file:
        csv.writer(file).writerow((2, "train", 1, EVIL))
    with (folder / "findings.csv").open("w", newline="") as file:
        file.write(FINDINGS.splitlines()[0] + "\n")
        csv.writer(file).writerow((EVIL, EVIL, EVIL, EVIL, "", 0, 1, EVIL, EVIL, 1, 1, 1, "", 1, EVIL))
    change_summary(
        folder,
        privacy__what_the_server_learned=[EVIL],
        utility__per_client={EVIL: {"test": {"mrr": {"value": 0.5}}}},
    )
    page = seen(folder)
    assert not page.tags.keys() & {"script", "img"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(EVIL) > 8


def test_a_cut_run_tells_what_is_there(folder: Path) -> None:
    (folder / "summary.json").unlink()
    metrics = (folder / "metrics.csv").read_text().splitlines()
    until = max(number for number, line in enumerate(metrics) if line.startswith("2,"))
    (folder / "metrics.csv").write_text("\n".join(metrics[: until + 1]) + "\n3,0,tra")
    messages = (folder / "messages.csv").read_text().splitlines()
    (folder / "messages.csv").write_text("\n".join(m for m in messages if m[0] in "r012") + "\n3,tr")
    text = seen(folder).text
    assert "This run has not ended: it stands at round 2 of at most 4" in text
    assert "fedkge run --resume copy" in text
    assert "validation MRR so far" in text
    assert "what the server learned is said at its end" in text


def test_a_run_that_only_began(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "experiment.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "Nothing was measured." in seen(folder).text


def test_findings_of_attacks(folder: Path) -> None:
    (folder / "findings.csv").write_text(FINDINGS)
    run = RunFolder.read(folder)
    strongest = worst([each for each in run.findings if not each.granted])
    assert strongest is not None
    assert (strongest.metric, strongest.value) == ("recall", 0.31)  # neither precision nor the paper's ERR
    text = seen(folder).text
    assert "0.310 recall The strongest attack: reconstruction by server + client 0 on uploads" in text
    assert "guessing reaches 0.010" in text
    assert "If also given LEE: entity recall 0.800 (server)." in text
    assert "7 findings; 1 of them say that an attack was not possible." in text
    assert "no client colludes" in text


def test_findings_at_the_level_of_guessing_are_called_so(folder: Path) -> None:
    lines = FINDINGS.splitlines()
    (folder / "findings.csv").write_text("\n".join([lines[0], lines[6]]) + "\n")
    assert "guessing reaches 0.500; no better than guessing." in seen(folder).text


def test_a_summary_alone_has_the_findings_too(folder: Path) -> None:
    (folder / "findings.csv").write_text(FINDINGS)
    written = RunFolder.read(folder).findings
    leakage: dict[str, dict[str, list[object]]] = {}
    for each in written:
        leakage.setdefault(each.attack, {}).setdefault(each.protocol, []).append(vars(each))
    (folder / "findings.csv").unlink()
    change_summary(folder, leakage=leakage)
    assert sorted(RunFolder.read(folder).findings, key=str) == sorted(written, key=str)


def test_spending_of_private_training(folder: Path) -> None:
    with (folder / "metrics.csv").open("a", newline="") as file:
        csv.writer(file).writerows(
            (round, client, "train", "epsilon", round * (client + 1))
            for round in (2, 4)
            for client in range(2)
        )
    change_summary(
        folder,
        privacy__epsilon={"0": 4.0, "1": float("inf")},
        privacy__delta={"0": 1e-5, "1": 1e-5},
        privacy__claimed_or_guaranteed={"0": "guaranteed", "1": "claimed"},
        privacy__outside_epsilon=["test scores: computed without noise"],
    )
    page = seen(folder)
    assert page.tags["figure"] == 6
    assert "largest ε of a client ∞ claimed" in page.text
    for words in ("ε spent", "0 4 1e-05 guaranteed", "1 ∞ 1e-05 claimed", "computed without noise"):
        assert words in page.text


def test_runs_side_by_side(folder: Path, tmp_path: Path) -> None:
    """Two seeds of one strategy make one line, with Student's interval; another strategy makes another."""
    together = tmp_path / "together"
    for name, seed, strategy, mrr in [("a", 0, "FedE", 0.4), ("b", 1, "FedE", 0.5), ("c", 0, "FedR", 0.3)]:
        shutil.copytree(folder, together / name)
        toml = (together / name / "experiment.toml").read_text()
        toml = toml.replace("seed = 0", f"seed = {seed}").replace('"FedE"', f'"{strategy}"')
        (together / name / "experiment.toml").write_text(toml)
        change_summary(together / name, utility__test__mrr={"value": mrr, "interval": [mrr, mrr]})
    low, high = student.interval(0.95, 1, loc=0.45, scale=0.1 / 2)
    page = seen(together)
    assert (together / "report.html").exists()
    assert f"0.4500 {low:.4f}–{high:.4f}" in page.text
    assert "0.450 test MRR, FedE" in page.text
    assert "FedE, FedR on UMLS" in page.text
    assert page.tags["figure"] == 5
    assert "Bytes so far" in page.text
    assert "gains over training alone" not in page.text  # nobody trained alone
    (together / "c" / "summary.json").unlink()
    assert "1 run of 3 did not end and enter no mean: c." in seen(together).text


def test_a_comparison_says_what_each_client_gains_over_training_alone(folder: Path, tmp_path: Path) -> None:
    together = tmp_path / "together"
    for strategy, scores in {"FedE": (0.5, 0.25), "Local": (0.375, 0.5), "Central": (0.9, 0.9)}.items():
        shutil.copytree(folder, together / strategy)
        toml = (together / strategy / "experiment.toml").read_text()
        (together / strategy / "experiment.toml").write_text(toml.replace('"FedE"', f'"{strategy}"'))
        found = {str(client): {"test": {"mrr": {"value": score}}} for client, score in enumerate(scores)}
        change_summary(together / strategy, utility__per_client=found)
    text = seen(together).text  # whose ranks are those of one run, whatever its summary says
    assert (
        "client FedE Local client 0 0.500 (+0.000 ± 0.000) 0.375 client 1 0.250 (+0.000 ± 0.000) 0.500"
        in text
    )
    RunFolder(together / "Local").ranks.unlink()
    text = seen(together).text
    assert "client FedE Local client 0 0.500 (+0.125) 0.375 client 1 0.250 (-0.250) 0.500" in text


def test_runs_of_one_strategy_are_told_apart_by_what_differs(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    toml = (other / "experiment.toml").read_text()
    (other / "experiment.toml").write_text(toml.replace("dim = 8", "dim = 16"))
    out = tmp_path / "both.html"
    write_report([folder, other], out)
    text = Seen(out.read_text(encoding="utf-8")).text
    assert "FedE, dim 8, FedE, dim 16 on UMLS" in text
    assert "They differ in model.dim." in text


def test_a_row_over_one_seed_has_the_interval_of_its_triples(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    row = row_of("FedE", [summary])
    assert list(row.interval) == summary["utility"]["test"]["mrr"]["interval"]
    assert row.rounds_to_target is None


DAMAGE = {
    "metrics.csv": ("round,client,split,metric,value\n1,0,valid,mrr,much\n", "metrics.csv, line 2"),
    "messages.csv": ("round,phase\n1,train\n", "no column 'client'"),
    "findings.csv": (FINDINGS + "reconstruction,paper\n", "findings.csv, line 9: the number of cells"),
    "summary.json": ("{", "summary.json: not JSON"),
    "experiment.toml": ("seed = = 1", "experiment.toml: not TOML"),
    "environment.json": ("[]", "environment.json: expected an object"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str, folder: Path) -> None:
    content, words = DAMAGE[name]
    (folder / name).write_text(content)
    (folder / "report.html").unlink()
    with pytest.raises(InputError, match=words) as caught:
        write_report([folder])
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


def test_bytes_that_are_no_text_are_named(folder: Path) -> None:
    (folder / "metrics.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        write_report([folder])


@pytest.mark.parametrize(("name", "words"), [("nowhere", "no such folder"), ("empty", "no run in it")])
def test_what_is_no_run_gets_one_line_and_exit_code_2(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = fedkge("report", name, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.strip().count("\n") == 0


def test_the_command_writes_where_it_is_told(finished: Path, tmp_path: Path) -> None:
    done = fedkge("report", finished, "--out", tmp_path / "here.html")
    assert done.returncode == 0, done.stderr
    assert "here.html" in done.stdout
    assert (tmp_path / "here.html").read_text() == (finished / "report.html").read_text()


def test_every_colour_can_be_told_from_its_ground() -> None:
    """By the contrast that WCAG 2 asks for: 4.5 for words, 3 for what is drawn; in light and in dark."""
    style = (Path(report.__file__).parent / "style.css").read_text(encoding="utf-8")
    schemes = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): #(\w{6});", scheme))
        for ground in ("paper", "card"):
            for words in ("ink", "soft", "accent"):
                assert contrast(colours[words], colours[ground]) >= 4.5
        assert contrast(colours["notice-ink"], colours["notice"]) >= 4.5
        for number in range(NUM_COLOURS):
            assert contrast(colours[f"c{number}"], colours["card"]) >= 3


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
