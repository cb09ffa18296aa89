"""The experiment file: what one run does, read from TOML, checked once, frozen.

Names of models, strategies and the like are plain text here; the layer that owns a registry checks them.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from fedkge.errors import InputError, SettingError

__all__ = [
    "AdversarySettings",
    "ClientSettings",
    "DPSettings",
    "DataSettings",
    "EngineSettings",
    "EvaluationSettings",
    "Experiment",
    "FederationSettings",
    "ModelSettings",
    "NoOptions",
    "PrivacySettings",
    "Settings",
    "TrainingSettings",
    "options_of",
]

SCHEMA = 1  # raise it when a default changes: the digest of an experiment leaves defaults out


class Settings(BaseModel):
    """Frozen options of one section; a bad one raises a single line that names it and the remedy."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    section: ClassVar[str] = ""

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise SettingError(_explain(type(self), error.errors()[0])) from None


class NoOptions(Settings):
    """The options of a model, strategy or attack that has none."""


Schema = TypeVar("Schema", bound=Settings)


def options_of(options: Mapping[str, Any], schema: type[Schema], section: str, owner: str = "") -> Schema:
    """Options as the schema of the plug-in that takes them; a bad one raises a single line.

    Args:
        options: by key, as the experiment file has them.
        schema: the plug-in's own settings.
        section: where they stand in the file, for errors: "federation.options".
        owner: the plug-in's name, for errors: "FedProx".
    """
    checked = schema.__new__(schema)
    try:
        BaseModel.__init__(checked, **options)
    except ValidationError as error:
        raise SettingError(_explain(schema, error.errors()[0], section, owner)) from None
    return checked


class DataSettings(Settings):
    """Which graph, and how it is spread over clients."""

    section = "data"
    dataset: str = Field(
        default="UMLS",
        min_length=1,
        description="a name from `fedkge data list`, a file, a folder, an archive, a FedE `.pkl`, or tables "
        "and their mapping: `mapped:source=FOLDER,mapping=eicu`",
    )
    columns: str | None = Field(
        default=None,
        description="what the columns of its text files hold, if not head, relation, tail or what a header "
        "says: `htr`, `head,relation,tail,_,_` (`_` is left out), or `0,1,2`",
    )
    features: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="files of texts or vectors of its labels, of entities unless `relation:` stands before "
        "the path; the first that has a label counts. Files beside the triples need no mention",
    )
    inductive: str | None = Field(
        default=None,
        min_length=1,
        description="hold out entities with all their triples: the shares of entities for validation and "
        "test, `0.1,0.1`, or a folder with `dev-ents.txt` and `test-ents.txt`; with `,keep` after it, "
        "triples among the others stay in their split; left out: none",
    )
    clients: int = Field(
        default=5,
        ge=1,
        description="among how many the graph is divided; a split that is given knows its own number",
    )
    partition: str = Field(
        default="fedr",
        description="how it is divided: `fedkge list partitions`; data that come divided need none",
    )
    vocabulary: Literal["own", "all"] = Field(
        default="own",
        description="`all`: in a simulation, every client has a row for every client's entities: it learns "
        "their labels, takes those that it holds no triple of as wrong answers, and may rank among them",
    )
    confidential: float | str = Field(
        default=0.0, description="a share such as 0.5, `relation:0.2`, `predicates:A|B`, or `column`"
    )

    def check_deployed(self) -> None:
        """Refuse what only whoever sees all clients can do."""
        if self.vocabulary == "all":
            raise SettingError(
                'data.vocabulary = "all": a client of a deployment would have to be told the labels of all '
                'others\' entities; leave it out, or set it to "own"'
            )


class ModelSettings(Settings):
    """Which embedding model, and its size; the defaults are the FedR paper's."""

    section = "model"
    name: str = Field(default="TransE", description="what each is: `fedkge list models`")
    dim: int = Field(
        default=128, ge=1, description="numbers in a row; complex models take two for each, quaternions four"
    )
    margin: float = Field(
        default=10.0,
        ge=0,
        allow_inf_nan=False,
        description="γ of the loss, for models that compare by distance; it also scales initial rows",
    )
    norm: Literal[1, 2] = Field(default=1, description="1: L1, 2: L2")
    options: dict[str, Any] = Field(default={}, description="what a model takes beyond these, as it says")


class TrainingSettings(Settings):
    """How a client trains; the defaults are the FedR paper's."""

    section = "training"
    type: Literal["negatives", "KvsAll"] = Field(
        default="negatives",
        description="`negatives`: each triple against some false ones; `KvsAll`: each question (h, r) of the "
        "train triples once against all entities, by binary cross-entropy (Ruffinelli et al., 2020)",
    )
    local_epochs: int = Field(default=3, ge=1, description="over a client's own triples, in each round")
    batch_size: int = Field(default=512, ge=1, description="triples in a step; under `KvsAll`, questions")
    negatives: int = Field(default=256, ge=1, description="false triples that each true one is held against")
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False, description="of the optimiser")
    optimizer: str = Field(default="Adam", description="`LazyAdam` leaves rows without a gradient alone")
    keep_optimizer: bool = Field(
        default=False, description="keep its state between rounds; FedR makes a new one each round"
    )
    decay_at: float = Field(default=1.0, gt=0, le=1, description="after this share of the rounds …")
    decay_by: float = Field(
        default=5.0, ge=1, allow_inf_nan=False, description="… the learning rate is this many times smaller"
    )
    decay_every: int | None = Field(
        default=None,
        ge=1,
        description="in each round anew, after each so many local epochs, the learning rate is `decay_by` "
        "times smaller too, as in torch's StepLR",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="L2: this times every parameter is added to its gradient at every step, as in torch; not "
        "for `LazyAdam`",
    )
    loss: str = Field(default="self-adversarial", description="of a triple and its negatives")
    adversarial_temperature: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="how much the self-adversarial loss favours hard negatives",
    )
    corrupt: Literal["tail", "head", "both"] = Field(
        default="tail",
        description="which end of a triple negatives replace, or questions of `KvsAll` ask for",
    )
    label_smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="ε of `KvsAll`: targets y become (1 − ε) y + ε / entities",
    )
    label_spread: Literal["smoothing", "one"] = Field(
        default="smoothing",
        description="`one`: y become (1 − ε) y + 1 / entities, as in the code of ConvE, LibKGE and NoGE",
    )
    max_gradient_norm: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="clips the gradient of all parameters together, before a strategy's term is added",
    )
    sampler: Literal["uniform", "bernoulli"] = Field(
        default="uniform",
        description='`bernoulli`: by how many answers a relation has; with `corrupt = "both"`',
    )
    filter_negatives: bool = Field(default=True, description="no negative is a train triple of this client")
    shared_negatives: bool = Field(default=False, description="one draw for the whole batch")
    negatives_from: Literal["own", "seen", "first", "batch"] = Field(
        default="own",
        description="`own`: all entities of the client; `seen`: those of its train triples, where others are "
        "held out; `batch`: entities of the batch's other triples (BLP, Daza et al., 2021); `first`: below "
        "the number of the client's entities, by shared number; those that it lacks are no negatives. What "
        "the FedR authors' FedE does by mistake",
    )
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="`cuda` takes the torch path")

    def rate_in(self, epoch: int) -> float:
        """The learning rate in one of a round's epochs, counted from 0."""
        if self.decay_every is None:
            return self.learning_rate
        return self.learning_rate / self.decay_by ** (epoch // self.decay_every)


class FederationSettings(Settings):
    """How clients work together; the defaults are the FedR paper's."""

    section = "federation"
    strategy: str = Field(default="FedR", description="what is shared: `fedkge list strategies`")
    share: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="what travels beside the strategy's own: tables or weights of the model by name, or "
        "`weights` for all of these; a strategy that shares nothing goes on so",
    )
    rounds: int = Field(default=300, ge=1, description="at most")
    evaluate_every: int = Field(
        default=5, ge=1, description="rounds between two validations, each of which leaves a checkpoint"
    )
    patience: int = Field(
        default=5, ge=1, description="validations in a row without a better MRR, after which the run stops"
    )
    target_mrr: float | None = Field(
        default=None, gt=0, le=1, description="report the rounds and bytes that it took to reach it"
    )
    fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="the share of clients drawn for a round; below 1 only without secure aggregation",
    )
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="with which probability a drawn client fails a round (simulated)"
    )
    weighting: Literal["holders", "triples"] = Field(
        default="holders",
        description="the mean over holders, or weighted by their triples (without secure aggregation)",
    )
    sync: Literal["round", "at-evaluation", "never"] = Field(
        default="round",
        description="when training goes on from the mean: `round`: always; `at-evaluation`: after each "
        "validation, from their own rows in between; `never`: the mean is ranked, and training keeps its own",
    )
    start: Literal["own", "alike"] = Field(
        default="own",
        description="rows that are not shared start from each client's secret; `alike`: from the seed, in "
        "simulations, to see what the start changes",
    )
    precision: Literal["float32", "float16"] = Field(
        default="float32", description="of the rows as they travel"
    )
    min_clients: int = Field(default=1, ge=1, description="the run stops if fewer answer")
    on_failure: Literal["continue", "repeat"] = Field(
        default="continue", description="leave out a client that fails, or ask it again, twice at most"
    )
    timeout: float = Field(
        default=3600.0, gt=0, allow_inf_nan=False, description="seconds to wait for an answer"
    )
    options: dict[str, Any] = Field(default={}, description="what a strategy takes beyond these, as it says")

    def check_deployed(self) -> None:
        """Refuse what no client of a deployment does."""
        if self.start == "alike":
            raise SettingError(
                'federation.start = "alike": a deployed client starts rows that are its own from its own '
                'secret; leave it out, or set it to "own"'
            )


class EvaluationSettings(Settings):
    """What is ranked against what; the defaults are the FedR paper's."""

    section = "evaluation"
    sides: Literal["tail", "head", "both"] = Field(default="tail", description="which end is ranked")
    candidates: Literal["own", "seen", "all", "union"] = Field(
        default="own",
        description="`own`: entities of the client's triples, at validation of those in train and valid; "
        "`seen`: entities of its train triples, and the true one; `all`: every entity of its vocabulary; "
        "`union`: in a simulation also others' entities that have a shared row",
    )
    filter: Literal["own", "all", "both"] = Field(
        default="both",
        description="whose true answers are left out of a ranking: `own`: the client's; `both`: beside these "
        "scores, in a simulation, those by all clients' answers; `all`: the same, and a deployment refuses",
    )
    ties: Literal["realistic", "optimistic", "pessimistic"] = Field(
        default="realistic", description="the rank of equal scores: the mean, the best or the worst"
    )

    def protocol(self, filter: str) -> dict[str, str]:
        """What a score under one filter must be read with."""
        return {"filter": filter, "sides": self.sides, "candidates": self.candidates, "ties": self.ties}

    def as_clients_rank(self) -> EvaluationSettings:
        """What clients themselves can do: they know their own answers, and rows of their own entities."""
        candidates = "own" if self.candidates == "union" else self.candidates
        return self.model_copy(update={"candidates": candidates, "filter": "own"})

    def check_deployed(self) -> None:
        """Refuse what only whoever sees all clients can do."""
        if self.filter == "all":
            raise SettingError(
                'evaluation.filter = "all": a client of a deployment cannot know the others\' triples, and '
                'so not leave out their answers; set it to "own" or "both"'
            )
        if self.candidates == "union":
            raise SettingError(
                'evaluation.candidates = "union": a client of a deployment receives rows of others\' '
                'entities without their labels, and so cannot rank against them; set it to "own" or "all"'
            )


class DPSettings(Settings):
    """How a client trains on its confidential triples; the section alone switches it on.

    `paper` is Algorithm 1 of Han et al. (2022) as printed, whose ε is a claim; `sound` mends it; `hubs`
    spends the budget where confidential triples pool; `sgm` is how Ghanvatkar and Wei (2021) trained a model
    of texts, a claim too. The others are for networks: they noise the edges once, by `target_epsilon`, and
    train from that in every round (networks.md).
    """

    section = "privacy.dp"
    mode: str = Field(
        default="hubs",
        description="the ε of `paper`, `sgm`, `dpne`, `dpne-absolute` and `dpm` is only a claim; the others "
        "carry a guarantee",
    )
    options: dict[str, Any] = Field(default={}, description="of a mode that has some of its own")
    sigma: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="noise per sensitivity: of each step in `sound` and `paper`, of the whole run in `hubs`",
    )
    target_epsilon: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="sets σ so that the whole run stays below it; a budget too",
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="bounds one triple's gradient; left out: by rule in `sound`, a percentile in `paper`",
    )
    percentile: float = Field(
        default=20.0, gt=0, le=100, description="of `paper`, over the norms of each batch, without `clip`"
    )
    delta: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="δ; left out: |C|^−1.1 over the confidential triples C (`paper`: 1 / N)",
    )
    budget: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="confidential triples are left alone before ε would exceed it; 0: from the start",
    )
    noise: Literal["auto", "lazy", "dense"] = Field(
        default="auto",
        description="`lazy` pays a row what it owes when it is read; the distribution is the same",
    )
    validation: Literal["unrestricted", "all"] = Field(
        default="unrestricted",
        description="`all` also validates on confidential triples, which is outside ε, and said so",
    )


class PrivacySettings(Settings):
    """What the server must not learn; without effect on strategies that share nothing."""

    section = "privacy"
    union: Literal["private", "oprf", "hashed", "plain"] = Field(
        default="private", description="how labels get their rows: see protocols.md"
    )
    secure_aggregation: bool = Field(
        default=True, description="the server sees sums in place of uploads; it needs three clients"
    )
    threshold: int | None = Field(
        default=None,
        ge=3,
        description="how many must answer for a sum; left out: over two thirds, see protocols.md",
    )
    min_holders: int = Field(
        default=3,
        ge=1,
        description="rows that fewer clients hold stay at home, as do those of fewer than `colluders` + 2; "
        "1 shares all, and protects none that one client holds",
    )
    colluders: int = Field(
        default=1, ge=0, description="clients that may help the server: a shared row has two more holders"
    )
    clip: float = Field(
        default=8.0, gt=0, allow_inf_nan=False, description="the largest number that a masked row may move by"
    )
    consistency: bool = Field(
        default=False,
        description="one more exchange per sum, so that every client sees a server that lies about survivors",
    )
    helpers: int = Field(default=2, ge=1, description="of the `oprf` union: clients 0, 1, …")
    query_budget: int = Field(
        default=4096, ge=1, description="names per client and table that a helper of the `oprf` union answers"
    )
    rows_from_seed: bool = Field(
        default=False,
        description="initial rows of shared tables from the public seed, as published code does; to measure "
        "what that leaks",
    )
    dp: DPSettings = DPSettings(mode="off")

    def quorum(self, clients: int) -> int:
        """How many must answer for a sum: over two thirds, and any two quorums share an honest one."""
        return self.threshold or max(2 * clients // 3 + 1, self.lowest_quorum(clients))

    def lowest_quorum(self, clients: int) -> int:
        """The smallest threshold t with 2 t > clients + colluders."""
        return max(3, (clients + self.colluders) // 2 + 1)

    @property
    def holders(self) -> int:
        """How many clients hold a shared row at least, so that two honest ones hide each other."""
        return 1 if self.min_holders == 1 else max(self.min_holders, 2 + self.colluders)

    @property
    def kept_holders(self) -> int:
        """How many of them a row keeps in every sum, whoever drops out."""
        return min(self.holders, 2 + self.colluders)

    def cover_quorum(self, clients: int) -> int:
        """How many must answer so that every row keeps its holders."""
        return clients - (self.holders - self.kept_holders)


class ClientSettings(Settings):
    """What one client does differently; what is left out is as for all."""

    section = "clients"
    client: int = Field(ge=0, description="its number, from 0")
    mode: str | None = Field(default=None, description="as in `[privacy.dp]`")
    options: dict[str, Any] | None = Field(default=None, description="as in `[privacy.dp]`")
    sigma: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="as in `[privacy.dp]`")
    budget: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="as in `[privacy.dp]`")
    data: str | None = Field(
        default=None,
        min_length=1,
        description="a file, folder or archive of its own triples, in the place of its part",
    )


class AdversarySettings(Settings):
    """What is recorded for attacks, who colludes with the server, and which attacks end the run."""

    section = "adversary"
    record: Literal["off", "last", "every"] = Field(
        default="off", description="which rounds are kept for attacks"
    )
    colluders: tuple[int, ...] = Field(default=(0,), strict=False, description="clients that help the server")
    leak_ratio: float = Field(
        default=1.0, gt=0, le=1, description="the share of its pairs that a colluder hands over"
    )
    attacks: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="run at the end of a simulation, on what it recorded: `fedkge list attacks`",
    )
    options: dict[str, dict[str, Any]] = Field(
        default={}, description="by the name of an attack: what it takes beyond these, as it says"
    )

    def check_deployed(self) -> None:
        """Refuse what would have to be scored with the clients' triples."""
        if self.attacks:
            names = ", ".join(self.attacks)
            raise SettingError(
                f"adversary.attacks: {names} cannot be scored in a deployment, where nobody "
                "has all clients' triples; leave them out, and attack a simulation of the run"
            )


class EngineSettings(Settings):
    """Where clients run; nothing here changes a result."""

    section = "engine"
    name: Literal["inline", "ray"] = Field(default="ray", description="threads of this process, or Ray")
    workers: int = Field(default=2, ge=1, description="threads or processes")
    ray_address: str | None = Field(
        default=None, description="of a Ray cluster, such as `host:6379`; left out: Ray is started here"
    )
    cpus_per_worker: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="that Ray reserves")
    gpus_per_worker: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="that Ray reserves")
    object_store_mb: int = Field(default=512, ge=80, description="memory of the Ray that is started here")


class Experiment(Settings):
    """Everything that one run depends on."""

    name: str = Field(default="quickstart", min_length=1, description="of the run's folder")
    seed: int = Field(default=0, ge=0, description="the same seed gives the same result, bit for bit")
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    federation: FederationSettings = FederationSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    privacy: PrivacySettings = PrivacySettings()
    adversary: AdversarySettings = AdversarySettings()
    engine: EngineSettings = EngineSettings()
    clients: tuple[ClientSettings, ...] = Field(default=(), strict=False)

    def model_post_init(self, context: Any) -> None:
        del context
        numbers = [each.client for each in self.clients]
        for number in set(numbers):
            if numbers.count(number) > 1:
                raise SettingError(
                    f"clients: client {number} has several sections; keep one [[clients]] of it"
                )

    def dp_of(self, client: int) -> DPSettings:
        """How that client trains on its confidential triples."""
        own = next((each for each in self.clients if each.client == client), None)
        if own is None:
            return self.privacy.dp
        changes = own.model_dump(include={"mode", "options", "sigma", "budget"}, exclude_none=True)
        if changes and "mode" not in changes and self.privacy.dp.mode == "off":
            changes["mode"] = DPSettings().mode
        if changes.get("mode", self.privacy.dp.mode) != self.privacy.dp.mode:
            changes.setdefault("options", {})  # those of one mode mean nothing to another
        if "sigma" in changes:
            changes["target_epsilon"] = None
        return self.privacy.dp.model_copy(update=changes)

    def unlike_sides(self) -> str:
        """What to say where training corrupts other sides than evaluation ranks; nothing where they agree."""
        corrupt, sides = self.training.corrupt, self.evaluation.sides
        if corrupt == sides:
            return ""
        return (
            f'training.corrupt = "{corrupt}", but evaluation.sides = "{sides}": training and ranking take '
            f'different sides; set training.corrupt = "{sides}" unless that is what you want to see'
        )

    def check_deployed(self) -> None:
        """Refuse what only a simulation can do, before a deployment starts."""
        self.data.check_deployed()
        self.evaluation.check_deployed()
        self.federation.check_deployed()
        self.adversary.check_deployed()

    @classmethod
    def load(cls, path: Path | str) -> Experiment:
        """Read a file; every mistake in it is an InputError that names the file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{path}: no such experiment file; give a path that exists, or none at all"
            ) from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: not UTF-8 text; save the experiment file as UTF-8") from None
        except SettingError as error:
            raise SettingError(f"{path}: {error}") from None

    @classmethod
    def from_toml(cls, text: str) -> Experiment:
        try:
            options = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingError(f"not TOML: {error}; mend that line of the experiment file") from None
        return cls(**options)

    def override(self, changes: Iterable[str]) -> Experiment:
        """The experiment with some options changed, each given as `section.key=value`."""
        options = self.model_dump(exclude_defaults=True)  # a first option of [privacy.dp] switches it on
        for change in changes:
            path, equals, value = change.partition("=")
            *sections, key = path.strip().split(".")
            target = options
            for section in sections:
                target = target.setdefault(section, {})
                if not isinstance(target, dict):
                    raise SettingError(f"'{change}': {section} has a value and no options below it")
            if not equals or not key:
                raise SettingError(f"'{change}': expected section.key=value, such as training.negatives=64")
            target[key] = _parsed(value.strip())
        return type(self)(**options)

    @classmethod
    def from_json(cls, text: str) -> Experiment:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """One line, for places that carry only text."""
        return self.model_dump_json()

    def to_toml(self) -> str:
        """The experiment with every default filled in; an option without a value is left out."""
        return "\n".join(_toml_lines(self.model_dump())) + "\n"

    def digest(self) -> str:
        """Equal for experiments that must give the same result: where they run and who looks on do not enter.

        Defaults do not enter either, so a setting that is added later leaves digests of older files alone.
        """
        content = self.model_dump(exclude={"engine", "name", "adversary"}, exclude_defaults=True)
        return hashlib.sha256(json.dumps([SCHEMA, content], sort_keys=True).encode()).hexdigest()


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text in quotes",
    "string_too_short": "text that is not empty",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a section of options",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "one of {expected}",
    "missing": "a value",
    "model_type": "a section of options",
    "model_attributes_type": "a section of options",
}


def _parsed(value: str) -> Any:
    """A value as TOML has it; a bare word is text."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _explain(settings: type[Settings], error: ErrorDetails, section: str = "", owner: str = "") -> str:
    section = section or settings.section
    key = str(error["loc"][0]) if error["loc"] else section
    place = f"{section}.{key}" if section else key
    fields = settings.model_fields
    if error["type"] == "extra_forbidden":
        near = get_close_matches(key, fields, n=1, cutoff=0.5)
        remedy = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(fields)}"
        return f"{place}: unknown key; {remedy if fields else f'{owner or section} has no options'}"
    expected = _EXPECTED.get(error["type"], error["msg"]).format(**error.get("ctx", {}))
    default = fields[key].default if key in fields else None
    if isinstance(default, Settings | dict):
        example = f"write [{place}] above its options"
    elif place == "clients":
        expected, example = "sections of options", "write [[clients]] above each client's options"
    elif key in fields and fields[key].is_required():
        if error["type"] == "missing":
            return f"{place}: missing; {f'{owner} needs it' if owner else f'every [[{section}]] needs one'}"
        example = f"{owner or section} needs it"
    elif default is None:
        example = "or leave it out for the default"
    else:
        example = f"for example {key} = {_toml_value(default)}"
    return f"{place}: expected {expected}, not {error['input']!r}; {example}"


def _toml_lines(options: Mapping[str, Any], parent: str = "") -> Iterator[str]:
    for key, value in options.items():
        if value is not None and not isinstance(value, Mapping) and not _is_tables(value):
            yield f"{_toml_key(key)} = {_toml_value(value)}"
    for name, values in options.items():
        section = f"{parent}{_toml_key(name)}"
        if isinstance(values, Mapping) and values:
            yield f"\n[{section}]"
            yield from _toml_lines(values, f"{section}.")
        elif _is_tables(values):
            for table in values:
                yield f"\n[[{section}]]"
                yield from _toml_lines(table, f"{section}.")


def _is_tables(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(entry, Mapping) for entry in value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(key)} = {_toml_value(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for the one control character that JSON leaves bare.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
