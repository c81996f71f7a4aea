"""What every algorithm in the registry must do, tested on each in the same way."""

import ast
import copy
import dataclasses
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak.algorithms import REGISTRY, get
from polyak.core.documentation import sentence
from polyak.core.engine.program import Program
from polyak.core.hyperparameters import HyperparameterError
from polyak.core.loops.off_policy import OffPolicyAlgorithm
from polyak.data import Transition

PEER = json.loads((Path(__file__).parent / "peer_constructors.json").read_text())
NAMES = sorted(REGISTRY)
VARIANTS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in NAMES]
VARIANTS += [(name, {"use_sde": True}) for name in ("a2c", "ppo", "sac")]


def small(name: str, seed: int = 3, **changes: Any) -> Any:
    """A small model of the algorithm, quick to train, that has made updates by 200 steps."""
    cls = get(name)
    env = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
    options: dict[str, Any] = {"seed": seed, "policy_kwargs": {"net_arch": [16, 16]}, "device": "cpu"}
    if issubclass(cls, OffPolicyAlgorithm):
        options |= {"buffer_size": 500, "learning_starts": 50, "batch_size": 16}
    else:
        options |= {"n_steps": 64}
    return cls("MlpPolicy", env, **options | changes)


def parameters(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.learner.networks().items()}


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float = 0.0) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor, theirs[name], rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_something(name: str) -> None:
    model = small(name)
    before = parameters(model)
    assert model.learn(200) is model
    assert model.num_timesteps >= 200
    assert model._n_updates > 0
    after = parameters(model)
    moved = [key for key in before if not torch.equal(before[key], after[key])]
    trained = [key for key in before if "weight" in key and "target" not in key]
    assert set(trained) <= set(moved), f"not trained: {set(trained) - set(moved)}"


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_result_other_seed_another(name: str) -> None:
    first, second, other = (parameters(small(name, seed=seed).learn(150)) for seed in (3, 3, 4))
    assert_same(first, second)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_is_bit_equal(name: str, tmp_path: Path) -> None:
    model = small(name).learn(200)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert_same(parameters(model), parameters(loaded))
    obs = np.stack([model.observation_space.sample() for _ in range(50)])
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    assert loaded.num_timesteps == model.num_timesteps
    ours, theirs = model.hyperparameters(), loaded.hyperparameters()
    assert repr(ours | {"device": ""}) == repr(theirs | {"device": ""})
    for key, optimizer in model.learner.optimizers.items():
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


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_resumed_it_goes_on_as_if_nothing_had_happened(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = small(name, **options)
    model.learn(128)
    include = ["replay_buffer"] if isinstance(model, OffPolicyAlgorithm) else []
    env = copy.deepcopy(model.get_env())
    model.save(tmp_path / "half", include=include)
    model.learn(128, reset_num_timesteps=False)
    torch.manual_seed(99)
    np.random.seed(99)

    resumed = type(model).load(tmp_path / "half", env=env, resume=True, force_reset=False, device="cpu")
    resumed.learn(128, reset_num_timesteps=False)
    assert_same(parameters(model), parameters(resumed))
    assert resumed.num_timesteps == model.num_timesteps


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_traced_it_equals_eager(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)  # the graph runs operation by operation
    check_compiled(name, options)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_compiled_it_equals_eager(name: str, options: dict[str, Any]) -> None:
    check_compiled(name, options)


def check_compiled(name: str, options: dict[str, Any]) -> None:
    eager, compiled = (small(name, compile=choice, **options).learn(128) for choice in (False, True))
    for _ in range(20):
        if isinstance(eager, OffPolicyAlgorithm):
            batch = Transition.from_samples(eager.replay_buffer.sample(16), eager.gamma)
        else:
            batch = next(iter(eager.rollout_buffer.get(16)))
        for model in (eager, compiled):
            torch.manual_seed(0)
            model.learner.update(batch)
    assert compiled.engine.status == "compiled"
    assert_same(parameters(eager), parameters(compiled), tolerance=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_constructor_has_the_peers_names_and_defaults(name: str) -> None:
    signature = inspect.signature(get(name))
    ours = {key: parameter.default for key, parameter in signature.parameters.items()}
    theirs = PEER[name]
    assert list(ours)[:3] == list(theirs)[:3]
    for key, default in theirs.items():
        assert key in ours, f"{name} has no argument {key}"
        value = ours[key] if ours[key] is not inspect.Parameter.empty else "<required>"
        assert value == default, f"{name}({key}): {value!r}, the peer's default is {default!r}"


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_is_read(name: str) -> None:
    cls = get(name)
    read: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("polyak."):
            for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(base)))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    read.add(node.attr)
    for field in dataclasses.fields(cls):
        assert field.name in read, f"{name}: nothing reads {field.name}"


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_is_documented_at_run_time(name: str) -> None:
    cls = get(name)
    documented = " ".join((cls.__doc__ or "").split())
    for field in dataclasses.fields(cls):
        text = sentence(cls, field.name)
        assert text, f"{name}: no sentence stands below {field.name}"
        entry = documented.partition(f" {field.name} (")[2]
        first = " ".join(text.split()).partition(":")[0]
        assert first in entry, f"{name}: help() does not say of {field.name} what stands below it"


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_refuses_what_it_cannot_be(name: str) -> None:
    cls = get(name)
    for field in dataclasses.fields(cls):
        if field.name == "env":
            continue
        wrong: Any = [object()]
        arguments = {"policy": "MlpPolicy", "env": None} | {field.name: wrong}
        with pytest.raises(HyperparameterError, match=rf"^{field.name}=\[<object .* cannot be used: it must be "):
            cls(**arguments)


@pytest.mark.parametrize("name", NAMES)
def test_its_learner_follows_the_hyperparameters_that_it_declares(name: str) -> None:
    model = small(name, compile=False)
    for dial in model.learner.dials:
        assert dial in {field.name for field in dataclasses.fields(model)}
    moved = {dial: 0.25 for dial, value in model.learner.dials.items() if type(value) is float}
    assert moved
    for dial, value in moved.items():
        setattr(model, dial, value)
    model.learn(130)
    for dial, value in moved.items():
        assert float(getattr(model.learner, dial)) == value, f"{name}: the learner does not follow {dial}"
    recipe = pickle.loads(pickle.dumps(model.learner_factory()))
    assert recipe().networks().keys() == parameters(model).keys()


@pytest.mark.parametrize("name", NAMES)
def test_repr_is_a_card(name: str) -> None:
    cls = get(name)
    model = small(name).learn(64)
    card = repr(model)
    for part in (cls.__name__, "1 x ", "in DummyVecEnv", "MlpPolicy", str(model.action_space), "64 steps", "cpu"):
        assert part in card
    assert "uncompiled: the run is short" in card
    assert "not built yet" in repr(cls("MlpPolicy", None))
    assert cls.__name__ in repr(cls.__new__(cls))


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_argument_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'tua'"):
        get(name)("MlpPolicy", "Pendulum-v1", tua=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_a_users_subclass_works(name: str) -> None:
    cls = get(name)

    class Mine(cls):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.mine = True

    env = gym.make("CartPole-v1" if name == "dqn" else "Pendulum-v1")
    model = Mine("MlpPolicy", env, learning_rate=1e-3, seed=0)
    assert model.mine
    assert isinstance(model, cls)
