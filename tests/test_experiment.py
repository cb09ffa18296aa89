"""Experiment files: defaults, round trips, and one clear line for every mistake."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from fedkge.errors import InputError, SettingError
from fedkge.experiment import (
    DataSettings,
    Experiment,
    ModelSettings,
    NoOptions,
    Settings,
    TrainingSettings,
    options_of,
)


def test_defaults_are_the_settings_of_the_fedr_paper():
    experiment = Experiment()
    assert (experiment.model.name, experiment.model.dim, experiment.model.margin) == ("TransE", 128, 10.0)
    assert (experiment.training.batch_size, experiment.training.negatives) == (512, 256)
    assert (experiment.training.learning_rate, experiment.training.local_epochs) == (1e-3, 3)
    assert experiment.federation.patience == 5


@given(
    name=st.text(min_size=1).filter(lambda text: text.isprintable() or "\x7f" in text or "\n" in text),
    dim=st.integers(1, 2048),
    rate=st.floats(1e-12, 1e6),
    target=st.none() | st.floats(0.001, 1),
    shared=st.booleans(),
)
def test_a_written_experiment_reads_back_equal(name, dim, rate, target, shared):
    experiment = Experiment(
        name=name,
        model={"dim": dim},
        training={"learning_rate": rate, "shared_negatives": shared},
        federation={"target_mrr": target},
    )
    assert Experiment.from_toml(experiment.to_toml()) == experiment


def test_a_written_experiment_has_every_default():
    written = tomllib.loads(Experiment().to_toml())
    for section in ("data", "model", "training", "federation", "evaluation"):
        fields = Experiment.model_fields[section].annotation.model_fields
        assert set(written[section]) == set(fields) - {
            "target_mrr",
            "options",
            "columns",
            "inductive",
            "max_gradient_norm",
            "decay_every",
        }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\ndim = 0", "model.dim: expected a number of at least 1, not 0; for example dim = 128"),
        ("[model]\ndimm = 3", "model.dimm: unknown key; did you mean 'dim'?"),
        ("[model]\nzzz = 3", "model.zzz: unknown key; known keys: name, dim, margin, norm, options"),
        ("modle = 3", "modle: unknown key; did you mean 'model'?"),
        ("model = 3", "model: expected a section of options, not 3; write [model] above its options"),
        (
            '[training]\nlearning_rate = "fast"',
            "training.learning_rate: expected a number, not 'fast'; for example learning_rate = 0.001",
        ),
        (
            "[training]\nlearning_rate = nan",
            "training.learning_rate: expected a finite number, not nan; for example learning_rate = 0.001",
        ),
        (
            "[training]\nnegatives = -1",
            "training.negatives: expected a number of at least 1, not -1; for example negatives = 256",
        ),
        (
            "[training]\nnegatives = 2.5",
            "training.negatives: expected a whole number, not 2.5; for example negatives = 256",
        ),
        (
            '[training]\ncorrupt = "relation"',
            "training.corrupt: expected one of 'tail', 'head' or 'both', not 'relation'; "
            'for example corrupt = "tail"',
        ),
        (
            "[federation]\ntarget_mrr = 2",
            "federation.target_mrr: expected a number of at most 1.0, not 2; or leave it out for the default",
        ),
        (
            "[privacy.dp]\nsigma = 0",
            "privacy.dp.sigma: expected a number above 0.0, not 0; for example sigma = 1.0",
        ),
        ("[privacy.dp]\nsigmas = 1", "privacy.dp.sigmas: unknown key; did you mean 'sigma'?"),
        (
            "[privacy]\ndp = 3",
            "privacy.dp: expected a section of options, not 3; write [privacy.dp] above its options",
        ),
        (
            "clients = 3",
            "clients: expected sections of options, not 3; write [[clients]] above each client's options",
        ),
        ("[[clients]]\nsigma = 1.0", "clients.client: missing; every [[clients]] needs one"),
        (
            "[[clients]]\nclient = 1\n[[clients]]\nclient = 1",
            "clients: client 1 has several sections; keep one [[clients]] of it",
        ),
        (
            '[training]\nfilter_negatives = "yes"',
            "training.filter_negatives: expected true or false, not 'yes'; "
            "for example filter_negatives = true",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key_and_the_remedy(text, message):
    with pytest.raises(SettingError) as caught:
        Experiment.from_toml(text)
    assert str(caught.value) == message


def test_sections_inside_sections_and_clients_read_back_equal():
    experiment = Experiment(
        privacy={"dp": {"sigma": 2.0, "clip": 0.5, "budget": 3.0}},
        clients=[{"client": 1, "sigma": 0.5}, {"client": 4, "mode": "off", "data": "own graph/"}],
    )
    written = experiment.to_toml()
    assert "[privacy.dp]" in written
    assert written.count("[[clients]]") == 2
    assert Experiment.from_toml(written) == experiment
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.override([]) == experiment


def test_the_section_of_private_training_switches_it_on():
    assert Experiment().privacy.dp.mode == "off"
    assert Experiment.from_toml("[privacy.dp]\nsigma = 2.0").privacy.dp.mode == "hubs"
    assert Experiment().override(["privacy.dp.sigma=2.0"]).privacy.dp.mode == "hubs"
    off = Experiment.from_toml('[privacy.dp]\nmode = "off"\nsigma = 2.0')
    assert off.override(["privacy.dp.clip=1.0"]).privacy.dp.mode == "off"


def test_a_client_differs_where_its_section_says_so():
    experiment = Experiment(
        privacy={"dp": {"target_epsilon": 3.0, "clip": 0.5}},
        clients=[{"client": 1, "sigma": 0.5}, {"client": 2, "mode": "off"}, {"client": 3, "budget": 1.0}],
    )
    assert experiment.dp_of(0) == experiment.privacy.dp
    assert (experiment.dp_of(1).sigma, experiment.dp_of(1).target_epsilon) == (0.5, None)
    assert experiment.dp_of(2).mode == "off"
    assert (experiment.dp_of(3).budget, experiment.dp_of(3).clip) == (1.0, 0.5)
    alone = Experiment(clients=[{"client": 1, "sigma": 2.0}])
    assert (alone.dp_of(0).mode, alone.dp_of(1).mode) == ("off", "hubs")


def test_sections_check_themselves():
    with pytest.raises(SettingError, match=r"model\.dim"):
        ModelSettings(dim=0)
    with pytest.raises(SettingError, match=r"data\.clients"):
        DataSettings(clients=0)


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        TrainingSettings().negatives = 3


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("name = ")
    with pytest.raises(InputError, match=r"broken\.toml: not TOML: .*mend that line"):
        Experiment.load(path)
    with pytest.raises(InputError, match=r"absent\.toml: no such experiment file"):
        Experiment.load(tmp_path / "absent.toml")
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(InputError, match="not UTF-8"):
        Experiment.load(path)
    path.write_text("[model]\ndim = 0")
    with pytest.raises(SettingError, match=r"broken\.toml: model\.dim"):
        Experiment.load(path)


def test_lists_are_written_read_and_refused_like_other_options():
    experiment = Experiment(adversary={"colluders": [0, 2], "attacks": ["reconstruction"], "leak_ratio": 0.3})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert Experiment().override(["adversary.colluders=[1]"]).adversary.colluders == (1,)
    with pytest.raises(SettingError, match=r"adversary\.colluders: expected a list.*colluders = \[0\]"):
        Experiment(adversary={"colluders": "client 0"})
    with pytest.raises(SettingError, match=r"adversary\.colluders: expected a whole number"):
        Experiment(adversary={"colluders": ["zero"]})


class Proximal(Settings):
    """The options of a strategy outside of fedkge."""

    mu: float = Field(default=0.1, gt=0)
    rounds: tuple[int, ...] = Field(default=(), strict=False)


class Demanding(Settings):
    """Options without which a plug-in does not work."""

    path: str


def test_options_become_what_the_plug_in_declares():
    experiment = Experiment().override(["federation.options.mu=2", "federation.options.rounds=[1, 2]"])
    assert options_of(experiment.federation.options, Proximal, "federation.options") == Proximal(
        mu=2.0, rounds=(1, 2)
    )
    assert options_of({}, Proximal, "federation.options").mu == 0.1
    assert options_of({}, NoOptions, "model.options") == NoOptions()


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"my": 1.0}, Proximal, "federation.options.my: unknown key; did you mean 'mu'?"),
        ({"zzz": 1.0}, Proximal, "federation.options.zzz: unknown key; known keys: mu, rounds"),
        ({"mu": "x"}, Proximal, "federation.options.mu: expected a number, not 'x'; for example mu = 0.1"),
        (
            {"mu": 0},
            Proximal,
            "federation.options.mu: expected a number above 0.0, not 0; for example mu = 0.1",
        ),
        ({"mu": 1.0}, NoOptions, "federation.options.mu: unknown key; FedE has no options"),
        ({}, Demanding, "federation.options.path: missing; FedE needs it"),
        ({"path": 3}, Demanding, "federation.options.path: expected text in quotes, not 3; FedE needs it"),
    ],
)
def test_a_mistake_in_options_is_one_line_that_names_their_place(options, schema, message):
    with pytest.raises(SettingError) as caught:
        options_of(options, schema, "federation.options", "FedE")
    assert str(caught.value) == message


def test_options_that_are_no_section_are_refused():
    message = r"model\.options: expected a section of options, not 3; write \[model\.options\] above"
    with pytest.raises(SettingError, match=message):
        Experiment(model={"options": 3})
    with pytest.raises(SettingError, match=r"federation\.options\.mu\.x=1': mu has a value"):
        Experiment(federation={"options": {"mu": 1}}).override(["federation.options.mu.x=1"])


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("aé .-", min_size=1), inner, min_size=1)
    ),
    max_leaves=6,
)


@given(options=st.dictionaries(st.text('mu_-. "é', min_size=1), VALUES, max_size=3))
def test_options_read_back_equal(options):
    experiment = Experiment(federation={"options": options}, model={"options": options})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.override(["seed=3"]).federation.options == options


def test_the_digest_tells_results_apart_and_nothing_else():
    digest = Experiment().digest()
    assert (
        Experiment(name="another", engine={"name": "inline"}, adversary={"record": "last"}).digest() == digest
    )
    assert Experiment(seed=0, model={"dim": 128, "options": {}}).digest() == digest
    others = [
        Experiment(seed=1),
        Experiment(model={"dim": 64}),
        Experiment(federation={"options": {"mu": 0.1}}),
        Experiment(federation={"options": {"mu": 0.2}}),
        Experiment(privacy={"dp": {}}),
        Experiment(privacy={"dp": {"mode": "off", "sigma": 2.0}}),
        Experiment(clients=[{"client": 1, "sigma": 2.0}]),
    ]
    assert len({digest, *(other.digest() for other in others)}) == 1 + len(others)


def test_a_setting_that_is_added_later_leaves_digests_alone():
    class Longer(TrainingSettings):
        warm_up: int = 0

    class Later(Experiment):
        training: Longer = Longer()

    assert Later(seed=3).digest() == Experiment(seed=3).digest()
    assert Later(seed=3, training={"warm_up": 1}).digest() != Experiment(seed=3).digest()


def test_a_default_that_changes_needs_a_new_schema_number():
    """Otherwise an old and a new experiment that say the same would have one digest and two results."""
    defaults = json.loads(Experiment().to_json())

    def check(section: str, then: dict, now: dict) -> None:
        for key, value in then.items():
            if isinstance(value, dict) and value:
                check(f"{section}.{key}", value, now[key])
            else:
                assert now.get(key, value) == value, f"{section}.{key}: raise experiment.SCHEMA"

    for section, options in DEFAULTS_OF_SCHEMA_1.items():
        check(section, options, defaults[section])


DEFAULTS_OF_SCHEMA_1 = {
    "data": {"dataset": "UMLS", "clients": 5, "partition": "fedr", "confidential": 0.0},
    "model": {"name": "TransE", "dim": 128, "margin": 10.0, "norm": 1, "options": {}},
    "training": {
        "local_epochs": 3,
        "batch_size": 512,
        "negatives": 256,
        "learning_rate": 0.001,
        "optimizer": "Adam",
        "keep_optimizer": False,
        "decay_at": 1.0,
        "decay_by": 5.0,
        "loss": "self-adversarial",
        "adversarial_temperature": 1.0,
        "corrupt": "tail",
        "sampler": "uniform",
        "filter_negatives": True,
        "shared_negatives": False,
        "device": "cpu",
    },
    "federation": {
        "strategy": "FedR",
        "rounds": 300,
        "evaluate_every": 5,
        "patience": 5,
        "target_mrr": None,
        "fraction": 1.0,
        "dropout": 0.0,
        "weighting": "holders",
        "precision": "float32",
        "min_clients": 1,
        "on_failure": "continue",
        "timeout": 3600.0,
        "options": {},
    },
    "evaluation": {"sides": "tail", "candidates": "own", "ties": "realistic"},
    "privacy": {
        "union": "private",
        "secure_aggregation": True,
        "threshold": None,
        "min_holders": 3,
        "clip": 8.0,
        "consistency": False,
        "helpers": 2,
        "query_budget": 4096,
        "rows_from_seed": False,
        "dp": {
            "mode": "off",
            "options": {},
            "sigma": 1.0,
            "target_epsilon": None,
            "clip": None,
            "percentile": 20.0,
            "delta": None,
            "budget": None,
            "noise": "auto",
            "validation": "unrestricted",
        },
    },
}
