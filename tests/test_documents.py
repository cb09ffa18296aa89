"""What the documents tell people to type works: run word for word, or parsed where it takes long."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path

import click
import numpy as np
import pytest
import typer
from packaging.version import Version
from typer.testing import CliRunner

import fedkge
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.plugins import Registry
from fedkge.simulations.cli.main import app
from fedkge.simulations.runs.run import run
from fedkge.simulations.studies import RECIPES
from tests.adversary.defences import DEFENCES
from tests.documents import (
    CHANGELOG,
    CONTRIBUTING,
    DOCUMENTS,
    EXTENDING,
    README,
    ROOT,
    anchors_of,
    blocks_of,
    links_of,
    sections_of,
    spans_of,
)

BIN = Path(sys.executable).parent

# Too long for a test, or in need of downloads or other machines. Another test runs a SuperLink and nodes.
PARSED_ONLY = (
    r"make ",
    r"fedkge compare .*--out result$|fedkge attack result/|python docs/draw_result\.py",
    r"fedkge data audit DDB14|fedkge data split FB15k",
    r"fedkge data (info|audit) (kg\.csv|codex|HQ_DIR|FinDKG|Hetionet|FB15k|stock-)",  # not at hand, or large
    r"fedkge export runs/hospitals",
    r"fedkge data map .*--mapping (eicu|mimic-iii) |fedkge compare experiments/eicu",  # of open data
    r"fedkge predict runs/described",  # of a run over texts that the documents do not have
    r"fedkge reproduce (?!--list)",
    r"fedkge .*--ray-address|ray start ",
    r"flower-superlink |flwr (run|supernode) |fedkge node |mkdir -p ~|printf .*~/\.flwr",
)
REDIRECTIONS = {">", ">>"}
LONGEST_EXAMPLE = 29  # lines

NAMES = [document.relative_to(ROOT).as_posix() for document in DOCUMENTS]
FOLLOWED = [
    name for name, document in zip(NAMES, DOCUMENTS, strict=True) if document not in (README, EXTENDING)
]
EXTENSIONS = [title for title, text in sections_of(EXTENDING).items() if "**Touches:**" in text]


def is_parsed_only(command: str) -> bool:
    return any(re.match(pattern, command) for pattern in PARSED_ONLY)


def words_of(command: str) -> list[str]:
    return shlex.split(command.split("<<")[0].replace("\\\n", " "), comments=True)


# Running them.


def run_python(code: str) -> dict[str, object]:
    """A block of a document, as a script of its own would run it."""
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "example", "exec", dont_inherit=True), names)
    return names


def run_command(command: str) -> None:
    """Our own command in this process, since a new one spends seconds on imports; all others by the shell."""
    words = words_of(command)
    if words[0] == "fedkge" and not REDIRECTIONS & set(words):
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception!r}"
        return
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert shell.returncode == 0, f"{command}\n{shell.stdout}{shell.stderr}"


def follow(document: Path) -> list[dict[str, object]]:
    """All blocks from top to bottom; what the Python among them defined."""
    defined = []
    for block in blocks_of(document):
        if block.language == "python":
            defined.append(run_python(block.text))
        for command in block.commands:
            if not is_parsed_only(command):
                run_command(command)
    return defined


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to work in, and registries that forget what examples put into them."""
    folder, before = tmp_path_factory.mktemp("reader"), Path.cwd()
    (folder / "docs").mkdir()
    os.chdir(folder)
    yield folder
    os.chdir(before)
    modules = [module for name, module in sys.modules.items() if name.startswith("fedkge")]
    for registry in {id(value): value for module in modules for value in vars(module).values()}.values():
        for name in list(registry) if isinstance(registry, Registry) else ():
            with suppress(KeyError):  # those that it came with stay
                del registry[name]


@pytest.fixture(scope="module")
def toured(reader: Path) -> list[dict[str, object]]:
    """The README from top to bottom, once."""
    return follow(README)


def test_the_tour_leaves_what_it_speaks_of(toured: list[dict[str, object]], reader: Path) -> None:
    for folder in ("first", "open", "protected", "mine", "python", "cautious"):
        assert (reader / "runs" / folder / "summary.json").is_file(), folder
    assert (reader / "runs" / "compared" / "report.html").is_file()
    assert "TRR" in (reader / "runs" / "open" / "findings.csv").read_text(encoding="utf-8")


def test_the_picture_of_the_readme_can_be_drawn_again(toured: list[dict[str, object]], reader: Path) -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "draw_result.py"))["draw"]
    for path in (reader / "one.svg", reader / "two.svg"):
        draw(reader / "runs" / "compared", path)
    drawn = (reader / "one.svg").read_text(encoding="utf-8")
    words = ("Local", "FedE", "FedR", "gain: MRR, own | all filter", "sends no rows", "not attacked")
    assert all(f"<!-- {name} -->" in drawn for name in words)
    assert "<!-- not possible -->" not in drawn
    assert drawn == (reader / "two.svg").read_text(encoding="utf-8")


def test_the_model_of_the_readme_trains_and_ranks(toured: list[dict[str, object]]) -> None:
    example = next(names for names in toured if "SimplE" in names)
    model, graph = example["model"], example["graph"]
    h, r, t = graph.train[:50].T.astype(np.int64)
    swapped = np.random.default_rng(1).permutation(graph.num_entities)[t]
    assert model.scores_of(h, r, t).mean() > model.scores_of(h, r, swapped).mean()
    untrained = example["build_model"](model.settings, graph, seed=0)
    judge = example["evaluate"], example["EvaluationSettings"]()
    before, after = (judge[0](a, graph, "test", judge[1]).metrics["mrr"] for a in (untrained, model))
    assert after > before + 0.1
    head, tail = model.query_head(model.entity[t], model.relation[r]), model.entity[h]
    np.testing.assert_allclose((head * tail).sum(-1).numpy(), model.scores_of(h, r, t), rtol=1e-4, atol=1e-5)


def test_the_strategy_of_the_readme_merges_in_its_own_way(
    toured: list[dict[str, object]], reader: Path
) -> None:
    experiment = Experiment.load(reader / "runs" / "cautious" / "experiment.toml")
    assert experiment.federation.strategy == "CautiousFedE"
    run(experiment.override(["federation.strategy=FedE"]), reader / "runs" / "plain")
    losses = [
        (reader / "runs" / name / "metrics.csv").read_text(encoding="utf-8") for name in ("cautious", "plain")
    ]
    assert losses[0] != losses[1]


def test_the_attack_of_the_readme_finds_something_in_a_recorded_view(toured: list[dict[str, object]]) -> None:
    example = next(names for names in toured if "Activity" in names)
    attack = example["attack"]
    findings = attack("runs/open", ["activity"], protocols=["rigorous"])
    attacked = {(finding.adversary, finding.target) for finding in findings}
    assert attacked >= {("server", 0), ("server", 1), ("server", 2)}
    assert all(0.75 < finding.value < 0.85 for finding in findings)
    masked = attack("runs/protected", ["activity"], protocols=["rigorous"])
    assert {finding.target for finding in masked} == {1, 2}  # the server alone knows no labels
    assert all(abs(finding.value) < 0.4 for finding in masked)  # over 130 entities: four standard deviations


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_commands_of_a_document_run(name: str, toured: list[dict[str, object]]) -> None:
    follow(ROOT / name)


def check_diff(diff: str) -> None:
    """A change of a file is one of the file as it is: what the change leaves stands there, line by line."""
    (path,) = re.findall(r"^--- a/(.+)$", diff, re.MULTILINE)
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    for hunk in diff.split("@@\n")[1:]:
        kept = [line[1:] for line in hunk.splitlines() if line[0] in " -"]
        starts = [at for at, line in enumerate(lines) if line == kept[0]]
        assert any(lines[at : at + len(kept)] == kept for at in starts), hunk


@pytest.mark.parametrize("title", EXTENSIONS)
def test_the_example_of_an_extension_runs(title: str, toured: list[dict[str, object]]) -> None:
    blocks = blocks_of(EXTENDING, sections_of(EXTENDING)[title])
    assert {block.language for block in blocks} <= {"python", "diff"}
    for block in blocks:
        if block.language == "python":
            run_python(block.text)
        else:
            check_diff(block.text)


def test_each_of_the_twelve_extensions_touches_two_files_at_most() -> None:
    assert len(EXTENSIONS) == 12
    touched = re.findall(r"^\*\*Touches:\*\* (\w+) files?\b", EXTENDING.read_text("utf-8"), re.MULTILINE)
    assert len(touched) == 12
    assert set(touched) <= {"one", "two"}


@pytest.mark.parametrize("document", [README, EXTENDING], ids=lambda path: path.name)
def test_examples_are_short(document: Path) -> None:
    lengths = [len(block.text.splitlines()) for block in blocks_of(document) if block.language == "python"]
    assert len(lengths) >= 4
    assert max(lengths) <= LONGEST_EXAMPLE


# Parsing them.


def parse(words: list[str]) -> click.Context:
    """Whether our command line accepts it: the command, its options, their values, and what is set."""
    command: click.Command = typer.main.get_command(app)
    rest = words[1:]
    while isinstance(command, click.Group):
        assert rest[0] in command.commands, f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    context = command.make_context(command.name, rest, resilient_parsing=not rest)  # a name alone is a name
    Experiment().override(context.params.get("sets") or ())
    return context


def check(command: str) -> None:
    words = list(takewhile(lambda word: word not in REDIRECTIONS, words_of(command)))
    program = words[0]
    if program == "fedkge":
        context = parse(words)
        if words[1] == "reproduce" and context.params["name"]:
            assert context.params["name"] in RECIPES
    elif program == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    elif program == "python" and words[1:3] == ["-m", "pytest"]:
        assert all((ROOT / path).exists() for path in words[3:]), command
    elif program == "python":
        script = ROOT / (words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1])
        assert script.is_file(), script
    elif program == "ray":
        from ray.scripts.scripts import cli

        cli.commands[words[1]].make_context(words[1], words[2:])
    elif program in ("flower-superlink", "flower-supernode", "flwr"):
        known = help_of(*([program] if program != "flwr" else words[:2]))
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", known), f"{program} has no {option}"


@cache
def help_of(*command: str) -> str:
    env = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_command_exists_with_its_options(name: str) -> None:
    commands = [command for block in blocks_of(ROOT / name) for command in block.commands]
    for command in [*commands, *spans_of(ROOT / name)]:
        try:
            check(command)
        except click.UsageError as error:
            pytest.fail(f"{name}: {command}\n{error.format_message()}")


@pytest.mark.parametrize("name", NAMES)
def test_flower_sends_no_telemetry_from_what_we_print(name: str) -> None:
    for block in blocks_of(ROOT / name):
        programs = [words_of(command)[0] for command in block.commands]
        if any(program.startswith(("flwr", "flower-")) for program in programs):
            assert block.commands[0] == "export FLWR_TELEMETRY_ENABLED=0", block.text


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError):
        check("fedkge run --sett seed=1")
    with pytest.raises(AssertionError, match="no command runn"):
        check("fedkge runn")
    with pytest.raises(SettingError, match="did you mean 'rounds'"):
        check("fedkge run --set federation.round=3")
    with pytest.raises(AssertionError, match=r"has no --insecur\b"):
        check("flower-superlink --insecur")


@pytest.mark.parametrize("pattern", PARSED_ONLY)
def test_nothing_is_excused_from_running_that_no_document_has(pattern: str) -> None:
    blocks = [block for document in DOCUMENTS for block in blocks_of(document)]
    commands = [command for block in blocks for command in block.commands]
    assert any(re.match(pattern, command) for command in commands)


# The pages themselves.


@pytest.mark.parametrize("name", NAMES)
def test_no_command_hides_in_an_indented_block(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"^    (fedkge|python|make|flwr|flower-\w+|ray) ", text, re.MULTILINE)


@pytest.mark.parametrize("name", [*NAMES, CHANGELOG.name])
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    for file, anchor in links_of(document):
        target = document.parent / file if file else document
        assert target.exists(), f"{name}: {file}"
        assert not anchor or anchor in anchors_of(target), f"{name}: {file}#{anchor}"


def test_an_anchor_is_made_as_on_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Keys, `K` and masks\n\n```sh\n# no heading\n```\n\n## R2.5: who – what?\n", encoding="utf-8"
    )
    assert anchors_of(page) == {"keys-k-and-masks", "r25-who--what"}


# The tests that they name.

NAMED_TEST = re.compile(r"\btest_\w+(?:\.py|…)?")


@cache
def known_tests() -> tuple[set[str], set[str]]:
    """Files of tests, and tests."""
    paths = list((ROOT / "tests").rglob("*.py"))
    functions = (re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")) for path in paths)
    return {path.name for path in paths}, {name for names in functions for name in names}


def is_known_test(name: str) -> bool:
    files, tests = known_tests()
    if name.endswith("…"):
        return any(test.startswith(name[:-1]) for test in tests)
    return name in files if name.endswith(".py") else name in tests


@pytest.mark.parametrize("name", NAMES)
def test_tests_that_a_document_names_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert [test for test in NAMED_TEST.findall(text) if not is_known_test(test)] == []
    assert [path for path in re.findall(r"\btests/[\w/]+(?:\.py)?", text) if not (ROOT / path).exists()] == []


def test_a_test_that_does_not_exist_is_found() -> None:
    assert is_known_test("test_documents.py")
    assert is_known_test("test_a_test_that_…")
    for name in ("test_no_such.py", "test_no_such_test", "test_no_such_test_…"):
        assert not is_known_test(name)


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md"])
def test_every_guarantee_names_a_test(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    promises = [line for line in lines if re.match(r"\| \*\*guaranteed\*\*", line, re.IGNORECASE)]
    promises += [line for line in lines if line.startswith("|") and "**mended**" in line]
    assert len(promises) >= 3
    for line in promises:
        assert NAMED_TEST.search(line) or re.search(r"`tests/\w+", line), line


def test_what_is_called_mended_is_shown_to_need_what_mends_it() -> None:
    """Each row of SECURITY.md names a test that fails without the defence, as test_defences.py shows."""
    shown = {test.split("::")[0].rpartition("/")[2] for each in DEFENCES.values() for test in each.tests}
    shown.add("test_flower.py")  # a plain SuperNode beside it, which runs what it is sent
    rows = [line for line in (ROOT / "SECURITY.md").read_text("utf-8").splitlines() if "**mended**" in line]
    assert len(rows) >= 12
    for row in rows:
        assert shown & set(NAMED_TEST.findall(row)), row


def test_contributors_are_told_of_every_target_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (targets,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    blocks = [command for block in blocks_of(CONTRIBUTING) for command in block.commands]
    told = {
        words_of(command)[1] for command in [*blocks, *spans_of(CONTRIBUTING)] if command.startswith("make ")
    }
    assert told == set(targets.split())


def test_the_changelog_begins_with_the_newest_version() -> None:
    versions = re.findall(r"^## (\S+) ", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    assert versions == sorted(set(versions), key=Version, reverse=True)
    assert fedkge.__version__ in versions
