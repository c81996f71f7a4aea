"""Hyper-parameters that are set on a model that is built: every one of every algorithm, by one table.

Each takes effect, so that whatever an update reads is as in a model that was constructed with the value, or is refused
with a reason; and a value that the constructor refuses is refused, too, and changes nothing.
"""

import dataclasses
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
import torch

from polyak.algorithms import REGISTRY, get
from polyak.experience import RolloutBuffer
from polyak.experience.episode_buffer import EpisodeBuffer
from polyak.hyperparameters.changing import FREE, FixedHyperparameterError, why_fixed
from polyak.hyperparameters.declaration import HyperparameterError, Only, declared
from polyak.logging.logger import Logger
from polyak.noise import NormalActionNoise
from polyak.schedules import ConstantSchedule, FloatSchedule, LinearSchedule
from tests.pairs import one_of_each
from tests.trials import trial

PARTNERS: dict[str, dict[str, Any]] = {
    "kl_target": {"kl_coef": 0.1},
    "munchausen": {"double": False, "n_steps": 1},
    **{f"munchausen_{each}": {"munchausen": True, "double": False, "n_steps": 1} for each in ("alpha", "clip")},
    "munchausen_temperature": {"munchausen": True, "double": False, "n_steps": 1},
    "ent_coef": {"ent_coef": 0.3},
    "target_entropy": {"target_entropy": 0.5},
    "lagrange_threshold": {"lagrange_threshold": 3.0},
    "n_steps": {"batch_size": 16},
    "rho_bar": {"c_bar": 0.3},
}
"""What else a model must have for a hyper-parameter to count."""


class OwnRolloutBuffer(RolloutBuffer):
    """One of a user's own."""


class OwnEpisodeBuffer(EpisodeBuffer):
    """One of a user's own."""


def value_for(name: str, declaration: Any, old: Any) -> Any:
    """Another value, by the annotation; what an annotation cannot say is listed."""
    listed: dict[str, Any] = {
        "action_noise": NormalActionNoise(np.zeros(1), 0.2 * np.ones(1)),
        "learning_rates": {"actor": 1e-5},
        "tensorboard_log": "logs",
        "rollout_buffer_class": OwnRolloutBuffer,
        "rollout_buffer_kwargs": {},
        "train_freq": 3,
        **({"beta": "exponential"} if old == "linear" else {}),
    }
    return listed[name] if name in listed else next(value for value in kinds_of(declaration, old) if value != old)


def kinds_of(declaration: Any, old: Any) -> Iterator[Any]:
    """Values of an annotation, those first that are likely in range."""
    kind, args = get_origin(declaration) or declaration, get_args(declaration)
    number = isinstance(old, int | float) and not isinstance(old, bool)
    if kind is Annotated:
        rules = [rule for rule in args[1:] if isinstance(rule, Only)]
        yield from (value for value in kinds_of(args[0], old) if all(rule.holds(value) for rule in rules))
    elif kind in (Union, types.UnionType):
        for arg in args:
            yield from kinds_of(arg, old)
    elif kind is Literal:
        yield from args
    elif kind is bool:
        yield not old
    elif kind is float:
        yield from (old / 2, 0.25, 1.5, -0.5) if number else (0.25, 1.5)
    elif kind is int:
        yield from (old // 2, old + 1, 2) if number else (1, 2)
    elif kind is type(None):
        yield None


def small(name: str, **options: Any) -> Any:
    cls = get(name)
    plain = {"compile": False} if "compile" in arguments(cls) else {}
    return cls(**{**trial(cls), **plain, **{k: v for k, v in options.items() if k in arguments(cls)}})


def arguments(cls: type) -> dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]


def reads(model: Any) -> dict[str, Any]:
    """What the next collection and the next update go by, wherever it is kept."""
    seen: dict[str, Any] = {"statistics": model.ep_info_buffer.maxlen, "values": plain(model.hyperparameters())}
    if (learner := getattr(model, "learner", None)) is not None:
        model.set_logger(Logger(None, []))
        if hasattr(model, "_following"):
            model._following()()
        seen["tunables"] = {name: plain(getattr(learner, name, None)) for name in learner.declared_tunables()}
        seen["rates"] = [float(group["lr"]) for each in learner.optimizers.values() for group in each.param_groups]
        seen["schedule"] = [model.lr_schedule(left) for left in (1.0, 0.5, 0.0)]
    if hasattr(getattr(getattr(model, "runner", None), "actor", None), "explore"):
        model.runner.actor.begin(model.n_envs)
        seen["exploration"] = [plain(vars(part)) for part in model.runner.actor.exploration.values()]
    if schedule := getattr(model, "exploration_schedule", None):
        seen["exploration schedule"] = schedule
    if "rollouts" in getattr(model, "parts", {}):
        model.rollouts.make_room()
        buffer = model.rollout_buffer
        seen["rollout"] = [type(buffer), buffer.buffer_size, buffer.gamma, buffer.gae_lambda]
    for each in ("replay_buffer", "data_buffer"):
        if hasattr(buffer := getattr(model, each, None), "reduce"):
            seen[each] = [buffer.reduce, buffer.buffer_size]
    if (rule := getattr(solver := getattr(model, "solver", None), "rule", None)) is not None:
        rates = [solver.along(each, 1) for each in ("epsilon", "learning_rate")]
        seen["rule"] = [rule.numbers(), rule.kernel, rule.n_draws, *rates]
    return plain(seen)


def plain(value: Any) -> Any:
    """Something that can be compared: objects by what they are made of."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, torch.Tensor | np.ndarray):
        return np.asarray(value).tolist()
    if isinstance(value, FloatSchedule | LinearSchedule | ConstantSchedule):
        return [value(left) for left in (1.0, 0.5, 0.0)]
    simple = isinstance(value, int | float | str | type | None) or dataclasses.is_dataclass(value)
    return value if simple or isinstance(value, type) else type(value).__name__


QUICK = [*("ppo", "appo", "dqn", "sac", "bc", "mbpo", "gail", "alphazero", "ars", "q_learning", "value_iteration")]
"""One or more of each kind; the others are slow tests."""


@pytest.mark.parametrize("name", one_of_each(REGISTRY, *QUICK))
def test_what_is_set_on_a_model_takes_effect_or_is_refused(name: str) -> None:
    cls, model = get(name), small(name)
    for field, declaration in declared(cls).items():
        if field in FREE:
            continue
        if why_fixed(cls, field) is not None:
            check_refused(model, field, object(), FixedHyperparameterError, "set on a model that is built: ")
            continue
        check_refused(model, field, [object()], HyperparameterError, "used: it must be ")
        if field != "demonstrations":  # a dataset: see the tests of algorithms that imitate
            check_followed(name, model, field, declaration)


def check_refused(model: Any, field: str, value: Any, error: type[Exception], why: str) -> None:
    old = getattr(model, field)
    with pytest.raises(error, match=rf"^{field}=.*<object .* cannot be {why}"):
        setattr(model, field, value)
    assert getattr(model, field) is old


def check_followed(name: str, model: Any, field: str, declaration: Any) -> None:
    partner = PARTNERS.get(field, {}) if name != "bcq" else {}
    model = small(name, **partner) if partner else model
    old, before = getattr(model, field), reads(model)
    value = value_for(field, declaration, old)
    if (name, field) == ("reinforce", "rollout_buffer_class"):
        value = OwnEpisodeBuffer
    try:
        wanted = reads(small(name, **{**partner, field: value}))
    except (HyperparameterError, ImportError) as error:
        with pytest.raises(type(error)):
            setattr(model, field, value)
        assert getattr(model, field) is old
        return
    setattr(model, field, value)
    assert reads(model) == wanted, f"{name}: {field}={value!r} is half done"
    assert wanted != before
    setattr(model, field, old)
    assert reads(model) == before, f"{name}: {field}={old!r} cannot be set back"


@pytest.mark.parametrize(
    ("name", "field", "value", "more"),
    [
        pytest.param("ppo", "learning_rate", 1e-2, {}, marks=pytest.mark.slow),
        ("ppo", "learning_rate", lambda left: 1e-2 * left, {}),
        pytest.param("ppo", "gamma", 0.5, {}, marks=pytest.mark.slow),
        ("ppo", "n_steps", 32, {"batch_size": 16}),
        ("ppo", "clip_range_vf", 1e-3, {}),
        pytest.param("ppo", "max_grad_norm", None, {}, marks=pytest.mark.slow),
        ("dqn", "train_freq", 1, {}),
        ("dqn", "gamma", 0.5, {"n_steps": 3}),
        pytest.param("dqn", "exploration_final_eps", 0.9, {}, marks=pytest.mark.slow),
        ("sac", "ent_coef", 3.0, {"ent_coef": 0.1}),
        pytest.param("sac", "target_entropy", 5.0, {}, marks=pytest.mark.slow),
        ("fast_td3", "noise_max", 2.0, {"gradient_steps": 1}),
        ("gail", "penalty", "interpolated", {}),
        ("q_learning", "learning_rate", 0.5, {"initial_value": 1.0}),
    ],
)
def test_training_goes_on_as_in_a_model_that_was_constructed_so(name: str, field: str, value: Any, more: Any) -> None:
    def trained(model: Any) -> list[np.ndarray]:
        model.learn(64)
        learner = getattr(model, "learner", None)
        tensors = [model.q] if learner is None else [t.numpy(force=True) for t in learner.networks().values()]
        return [np.array(tensor) for tensor in tensors]

    model = small(name, **more)
    setattr(model, field, value)
    found = trained(model)
    wanted, otherwise = trained(small(name, **{**more, field: value})), trained(small(name, **more))
    for here, there in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(here, there)
    assert any(not np.array_equal(here, there) for here, there in zip(found, otherwise, strict=True))


def test_rates_set_on_an_optimizer_last_until_the_next_update() -> None:
    model, wanted = small("ppo"), small("ppo")
    for group in model.policy.optimizer.param_groups:
        group["lr"] = 0.5
    assert [group["lr"] for group in model.policy.optimizer.param_groups] == [0.5]
    for each in (model, wanted):
        each.set_random_seed(0)
        each.learn(64)
    assert [float(group["lr"]) for group in model.policy.optimizer.param_groups] == [pytest.approx(3e-4)]
    for here, there in zip(model.policy.parameters(), wanted.policy.parameters(), strict=True):
        assert torch.equal(here, there)
    other = small("ppo", learning_rate=0.1)
    model.set_parameters(other.get_parameters())
    model.learn(64)
    assert [float(group["lr"]) for group in model.policy.optimizer.param_groups] == [pytest.approx(3e-4)]


@pytest.mark.parametrize("value", [-1, "fast", None, [1e-3]])
def test_a_bad_rate_is_refused_and_the_old_one_stays(value: Any) -> None:
    model = small("ppo")
    with pytest.raises(HyperparameterError, match="^learning_rate="):
        model.learning_rate = value
    assert model.learning_rate == 3e-4
    assert model.lr_schedule(0.5) == 3e-4


def test_what_depends_on_others_is_checked_with_them() -> None:
    model = small("ppo")
    with pytest.raises(HyperparameterError, match=r"^batch_size=64 cannot be used: a rollout has only .* = 32 rows"):
        model.n_steps = 32
    assert model.n_steps == 64
    model.batch_size = 32
    model.n_steps = 32
    model.learn(32)
    assert model.num_timesteps == 32


@pytest.mark.parametrize(("before", "value"), [("auto", 0.1), (0.1, "auto"), ("auto", "auto_0.1")])
def test_whether_a_temperature_is_learned_is_decided_once(before: Any, value: Any) -> None:
    model = small("sac", ent_coef=before)
    with pytest.raises(FixedHyperparameterError, match="model.log_ent_coef.fill_"):
        model.ent_coef = value
    assert model.ent_coef == before


def test_the_reason_names_the_way_out() -> None:
    model = small("ppo")
    with pytest.raises(AttributeError, match=r"model\.set_env\(env\)"):
        model.env = None
    with pytest.raises(ValueError, match=r"load\(path, device=\.\.\.\)"):
        model.device = "cuda"
    with pytest.raises(FixedHyperparameterError, match=r"load\(path, buffer_size=\.\.\.\)"):
        small("dqn").buffer_size = 7


def test_a_class_keeps_its_defaults_and_a_model_its_values(tmp_path: Any) -> None:
    cls = get("ppo")
    model = small("ppo", gamma=0.5)
    assert (cls.gamma, model.gamma) == (0.99, 0.5)
    model.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model", gamma=0.25)
    assert loaded.gamma == 0.25
    with pytest.raises(HyperparameterError, match="^gamma="):
        loaded.gamma = 2

    @dataclasses.dataclass(eq=False, repr=False)
    class Own(cls):  # type: ignore[misc, valid-type]
        gamma: float
        bonus: int = 3

    own = Own(**{**trial(cls), "compile": False})
    assert (own.gamma, own.bonus) == (0.99, 3)
    own.bonus = 4
    with pytest.raises(HyperparameterError, match="^bonus="):
        own.bonus = "many"
    assert own.bonus == 4


def test_a_rollout_that_is_under_way_keeps_its_length() -> None:
    model = small("ppo", batch_size=16)

    def shorten(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        if model.num_timesteps == 10:
            model.n_steps = 32
        return True

    model.learn(96, callback=shorten)
    assert model.num_timesteps == 64 + 32
    assert model.rollout_buffer.buffer_size == 32
