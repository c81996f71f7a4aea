"""What every algorithm in the registry must do, tested on each in the same way.

The scope of the parameters has no fixture behind it: it lets all tests of one algorithm run in a row, in one process,
where they share its trained models.
"""

import ast
import contextlib
import copy
import dataclasses
import functools
import inspect
import io
import itertools
import json
import pickle
import sys
from collections.abc import Collection
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.algorithm import Algorithm
from polyak.algorithms import REGISTRY, class_names, get
from polyak.algorithms.alphazero import AlphaZero
from polyak.algorithms.tabular.planning import Planning
from polyak.algorithms.tabular.table import TableAlgorithm
from polyak.checkpoint.saved import Saved
from polyak.experience import Transition
from polyak.fields.asynchronous import AsynchronousAlgorithm
from polyak.fields.dataset import LearnsFromData
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.changing import inherited
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.hyperparameters.docstrings import sentence
from polyak.parts.part import OfPolicy
from tests.laws.toys import TOYS
from tests.learning.changes import assert_same
from tests.pairs import one_of_each
from tests.tolerance import drift
from tests.trials import trial

PEER = json.loads((Path(__file__).parent / "peer_constructors.json").read_text())
CLASSES = {name: get(name) for name in REGISTRY} | {name: resolve_name(entry) for name, entry in TOYS.items()}
NAMES = sorted(CLASSES)
DEEP = [name for name, cls in CLASSES.items() if hasattr(cls, "learner_class")]
TRACED = ["ppo", "recurrent_ppo", "appo", "dqn", "sac", "bc", "ars", "alphazero", "gail"]
"""One or more of each kind, and those whose updates have parts that no others have: the others are slow tests."""
RESUMED = [
    *("ppo", "recurrent_ppo", "appo", "dqn", "rainbow", "sac", "cql", "bc", "mbpo", "hiro", "gail", "dagger"),
    *("alphazero", "ars", "fqe", "q_learning", "dyna_q", "value_iteration"),
]
"""As :data:`TRACED`, of what a file must hold to go on."""
PLANNING = [name for name, cls in CLASSES.items() if issubclass(cls, Planning)]
DRAWING = sorted(set(NAMES) - set(PLANNING))
INTERACTING = [name for name, cls in CLASSES.items() if issubclass(cls, Algorithm) and cls.steps_environments]


def fields_of(name: str) -> set[str]:
    return {field.name for field in dataclasses.fields(CLASSES[name])}


def with_sde(names: list[str], quick: Collection[str] = NAMES) -> list[Any]:
    """Each algorithm, and once more with state-dependent exploration where it has that; those not `quick` are slow.

    With that exploration one algorithm for each way that actions come about stands for the others, which are slow.
    """
    have_it = [name for name in names if "use_sde" in fields_of(name) and spaces.Box in CLASSES[name].action_spaces]
    one_of_each = {"ppo", "sac"}.intersection(quick)
    rows = [(name, {}, name, name in quick) for name in names]
    rows += [(name, {"use_sde": True}, f"{name}-sde", name in one_of_each) for name in have_it]
    slow = [pytest.mark.slow]
    return [pytest.param(name, each, id=label, marks=[] if now else slow) for name, each, label, now in rows]


def small(name: str, seed: int = 3, **changes: Any) -> Any:
    """A small model of the algorithm, quick to train, that has made updates by 64 steps."""
    cls = CLASSES[name]
    options = {**trial(cls), "seed": seed}
    if changes.get("use_sde"):
        options["env"] = "Pendulum-v1"
    return cls(**{**options, **changes})


@functools.cache
def trained(name: str, **changes: Any) -> Any:
    """A model after 64 steps, which all tests share and none trains; what it had learned before them, and then; its
    file, in which the streams of random numbers stand as they did then."""
    model, file = small(name, **changes), io.BytesIO()
    before = learned(model)
    assert model.learn(64) is model
    model.save(file, include=model.saves_also)
    return model, before, learned(model), file


@functools.cache
def trained_on(name: str, **changes: Any) -> Any:
    """What another such model has learned after 64 steps, and itself after as many more."""
    model = small(name, **changes).learn(64)
    return learned(model), model.learn(64, reset_num_timesteps=False)


def not_in_files(model: Algorithm) -> dict[str, Any]:
    """What a model needs to learn on besides its file: data, or environments, which are made again."""
    kept = {"policy", *model.hyperparameters()}
    given = {name: value for name, value in trial(type(model)).items() if name not in kept}
    if model.get_env() is None or isinstance(model, OnPolicyAlgorithm | LearnsFromData):
        return given
    return {**given, "env": copy.deepcopy(model.get_env())}


def learned(model: Algorithm) -> dict[str, torch.Tensor]:
    """What the model has learned, as a file would hold it."""
    saved = Saved({})
    model._save_state(saved, set())
    going_on = {"runner", "actor", "normalizer", "environments"}
    arrays = {name: array for name, array in saved.state.items() if going_on.isdisjoint(name.split("/"))}
    return {name: torch.as_tensor(np.array(array)) for name, array in {**saved.networks, **arrays}.items()}


def observations(model: Any) -> np.ndarray:
    """Some that it may be asked about [50, ...]: any of its space, but of a game only boards that can be."""
    if isinstance(model, AlphaZero):
        return model.env.observe(model.self_play.positions.repeat(10, axis=0)[:50])
    return np.stack([model.observation_space.sample() for _ in range(50)])


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_the_package_offers_what_the_registry_lists() -> None:
    import polyak
    from polyak import algorithms

    for class_name, name in class_names().items():
        assert getattr(polyak, class_name) is getattr(algorithms, class_name) is get(name)
        assert class_name in polyak.__all__


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_it_learns_something(name: str) -> None:
    model, before, after, _ = trained(name)
    assert model.num_timesteps >= 64 or (name in PLANNING and model.converged)
    assert model._n_updates > 0
    moved = {key for key in after if key not in before or not torch.equal(before[key], after[key])}
    assert moved
    frozen = {key for key, p in model.learner.named_parameters() if not p.requires_grad} if name in DEEP else set()
    weights = {key for key in before if "weight" in key and "target" not in key} - frozen
    assert weights <= moved, f"not trained: {weights - moved}"


@pytest.mark.parametrize("name", one_of_each(DRAWING, *[name for name in RESUMED if name in DRAWING]), scope="module")
def test_same_seed_same_result_other_seed_another(name: str) -> None:
    _, before, first, _ = trained(name)
    assert_same(first, trained_on(name)[0])
    other = small(name, seed=4)
    if same(before, learned(other)):  # tables and linear policies begin with zeros, networks do not
        assert not same(first, learned(other.learn(64)))


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_saved_and_loaded_it_is_bit_equal(name: str, tmp_path: Path) -> None:
    model = trained(name)[0]
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert_same(learned(model), learned(loaded))
    obs = observations(model)
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    assert loaded.num_timesteps == model.num_timesteps
    ours, theirs = model.hyperparameters(), loaded.hyperparameters()
    assert repr(ours | {"device": ""}) == repr(theirs | {"device": ""})
    for key, optimizer in model.learner.optimizers.items() if name in DEEP else ():
        _assert_equal_state(optimizer.state_dict(), loaded.learner.optimizers[key].state_dict())


def _assert_equal_state(ours: Any, theirs: Any) -> None:
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            _assert_equal_state(ours[key], theirs[key])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            _assert_equal_state(a, b)
    else:
        assert (
            bool(ours == theirs) if not isinstance(ours, torch.Tensor) else torch.equal(ours, torch.as_tensor(theirs))
        )


@pytest.mark.parametrize(("name", "options"), with_sde(NAMES, quick=RESUMED), scope="module")
def test_resumed_it_goes_on_as_if_nothing_had_happened(name: str, options: dict[str, Any]) -> None:
    half, _, _, file = trained(name, **options)
    whole = trained_on(name, **options)[1]
    torch.manual_seed(99)
    np.random.seed(99)

    file.seek(0)
    resumed = type(half).load(file, resume=True, force_reset=False, device="cpu", **not_in_files(half))
    resumed.learn(64, reset_num_timesteps=False)
    assert_same(learned(whole), learned(resumed))
    assert resumed.num_timesteps == whole.num_timesteps


@pytest.mark.parametrize(("name", "options"), with_sde(DEEP, quick=TRACED), scope="module")
def test_replayed_it_equals_eager(name: str, options: dict[str, Any]) -> None:
    check_programs(name, options, "replay", enough=4, eager=trained(name, **options)[0])


# TRPO's natural gradient and line search make a rounding of its weights grow as fast as other calls do
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), with_sde([name for name in DEEP if name != "trpo"]))
def test_replayed_for_long_it_equals_eager(name: str, options: dict[str, Any]) -> None:
    check_programs(name, options, "replay", enough=50)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), with_sde(DEEP))
def test_compiled_it_equals_eager(name: str, options: dict[str, Any]) -> None:
    check_programs(name, options, True)


def check_programs(
    name: str, options: dict[str, Any], kind: bool | str, enough: int = 1_000, eager: Any = None
) -> None:
    """Train both; then batches of other sizes, for which other programs are made, if there were not `enough` steps.

    A trained model given as `eager` is not trained on: where that is needed, another takes its place.
    """
    if eager is None or eager.learner.steps < enough:
        eager = small(name, compile=False, **options).learn(64)
    other = small(name, compile=kind, **options).learn(64)
    if eager.learner.steps < enough:
        learn_other_batches(name, eager, other, max(20, min(enough, 50) - eager.learner.steps))
    assert other.engine.status == ("compiled" if kind is True else "replayed")
    assert eager.learner.steps == other.learner.steps
    rows_and_widths = 64 + 4 + 16 + 16
    assert_same(learned(eager), learned(other), drift(eager.learner.steps, 1e-3, rows_and_widths))


def learn_other_batches(name: str, eager: Any, other: Any, updates: int) -> None:
    own = () if isinstance(eager, LearnsFromData | OnPolicyAlgorithm) else itertools.cycle(batches_of(small(name)))
    for _ in range(updates):
        if own:
            batch = next(own)
        elif isinstance(eager, LearnsFromData):
            buffer = eager.data_buffer if eager.learns_offline else eager.replay_buffer
            batch = Transition.from_samples(buffer.sample(16), eager.gamma)
        elif isinstance(eager, AsynchronousAlgorithm):
            batch = eager.collector.unrolls[0]
        else:
            batch = next(iter(eager.rollout_buffer.get(16)))
        for model in (eager, other):
            torch.manual_seed(0)
            model.learner.update(batch)


def batches_of(model: Any) -> list[Any]:
    """The batches with which an algorithm's own loop updates its learner in 64 steps."""
    seen: list[Any] = []
    update = model.learner.update
    with patch.object(type(model.learner), "update", lambda _, batch: (seen.append(batch), update(batch))[1]):
        model.learn(64)
    return seen


@pytest.mark.parametrize("name", sorted(PEER.keys() & CLASSES.keys()))
def test_constructor_has_the_peers_names_and_defaults(name: str) -> None:
    signature = inspect.signature(get(name))
    ours = {key: parameter.default for key, parameter in signature.parameters.items()}
    theirs = PEER[name]
    assert list(ours)[:3] == list(theirs)[:3]
    for key, default in theirs.items():
        assert key in ours, f"{name} has no argument {key}"
        value = ours[key] if ours[key] is not inspect.Parameter.empty else "<required>"
        assert value == default, f"{name}({key}): {value!r}, the peer's default is {default!r}"


@functools.cache
def attributes_read(module: ModuleType) -> set[str]:
    """Names that stand behind a dot, or quoted in brackets, where they are read."""
    nodes = [
        node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(getattr(node, "ctx", 0), ast.Load)
    ]
    keys = {
        node.slice.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | keys


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_every_hyperparameter_is_read(name: str) -> None:
    cls = CLASSES[name]
    read: set[str] = set()
    learner = cls.learner_class.__mro__ if name in DEEP else ()
    parts = [getattr(part, "func", part) for part in inherited(cls, "made_of").values()]
    solver = type(small(name).solver).__mro__ if issubclass(cls, TableAlgorithm) else ()
    for base in (*cls.__mro__, *learner, *solver, *(base for part in parts for base in part.__mro__)):
        if base.__module__.startswith(("polyak.", "tests.laws.toys.")):
            read |= attributes_read(inspect.getmodule(base))
    if name in DEEP:
        read |= attributes_read(sys.modules[cls.loop.__module__])
        read |= {each for part in trained(name)[0].parts.values() if isinstance(part, OfPolicy) for each in part.names}
    for field in dataclasses.fields(cls):
        if field.name == "env" and name not in INTERACTING:
            continue
        assert field.name in read, f"{name}: nothing reads {field.name}"


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_every_hyperparameter_is_documented_at_run_time(name: str) -> None:
    cls = CLASSES[name]
    documented = " ".join((cls.__doc__ or "").split())
    for field in dataclasses.fields(cls):
        text = sentence(cls, field.name)
        assert text, f"{name}: no sentence stands below {field.name}"
        entry = documented.partition(f" {field.name} (")[2]
        first = " ".join(text.split()).partition(":")[0]
        assert first in entry, f"{name}: help() does not say of {field.name} what stands below it"


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_every_hyperparameter_refuses_what_it_cannot_be(name: str) -> None:
    for field in fields_of(name) - {"env"}:
        with pytest.raises(HyperparameterError, match=rf"^{field}=\[<object .* cannot be used: it must be "):
            small(name, **{field: [object()]})


@pytest.mark.parametrize("name", one_of_each(DEEP, *[name for name in RESUMED if name in DEEP]), scope="module")
def test_its_learner_follows_the_hyperparameters_that_it_declares(name: str) -> None:
    model = small(name, compile=False)
    assert model.learner.tunables.keys() <= fields_of(name)
    moved = {tunable: 0.25 for tunable, value in model.learner.tunables.items() if type(value) is float}
    moved |= {tunable: 2 for tunable, value in model.learner.tunables.items() if type(value) is int}
    waiting, before = dict(moved), len(moved) + 1
    while len(waiting) < before:  # some may only be so large as another; what is refused in the end stays as it is
        before = len(waiting)
        for tunable, value in list(waiting.items()):
            with contextlib.suppress(HyperparameterError):
                setattr(model, tunable, value)
                del waiting[tunable]
    moved = {tunable: value for tunable, value in moved.items() if tunable not in waiting}
    assert moved or name in TOYS
    model.learn(66)
    for tunable, value in moved.items():
        assert float(getattr(model.learner, tunable)) == value, f"{name}: the learner does not follow {tunable}"
    recipe = pickle.loads(pickle.dumps(model.learner_factory()))
    assert recipe().networks().keys() == model.learner.networks().keys()


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_repr_is_a_card(name: str) -> None:
    model = trained(name)[0]
    parts = [
        type(model).__name__,
        str(model.action_space),
        f"{model.num_timesteps} steps",
        f"{model._n_updates} updates",
    ]
    offline = getattr(model, "learns_offline", False)
    parts += ["Dataset(", "transitions"] if offline else ["1 x ", "in DummyVecEnv"] if name in INTERACTING else []
    parts += ["MlpPolicy", "cpu", model.engine.status] if name in DEEP else []
    for part in parts:
        assert part in repr(model)
    assert type(model).__name__ in repr(type(model).__new__(type(model)))  # as a debugger shows it in its constructor


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_an_unknown_argument_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'tua'"):
        small(name, tua=0.1)


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_a_users_subclass_works(name: str) -> None:
    cls = CLASSES[name]

    class Mine(cls):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.mine = True

    model = Mine(**trial(Mine))
    assert model.mine
    assert isinstance(model, cls)
