"""Whatever acts, an environment gets actions that its space contains."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from polyak import DQN, PPO, SAC, TD3, QLearning
from polyak.compat.rllib_face.environments import scaled
from polyak.envs import ActionNoiseWrapper, ActionSmoothingWrapper, DummyVecEnv, SubprocVecEnv
from polyak.envs.spaces import clipped, get_action_dtype
from polyak.experience import Dataset, collect
from polyak.nn.codec import ActionCodec, make_codec
from polyak.noise import NormalActionNoise
from tests.worlds import World

INTEGERS = [np.dtype(code) for code in "bBhHiIlLqQ"]
FLOATS = [np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)]
SHAPES = [(), (1,), (3,), (2, 2)]
TRAINING: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "phases": [Phase.explicit, Phase.generate],  # to make an example smaller, many models would have to be trained
}


@st.composite
def boxes(draw: Any, dtypes: list[Any] = INTEGERS + FLOATS, whole_range: bool = True) -> spaces.Box:
    """Boxes of any type and bounds, whose span is finite."""
    dtype, shape = draw(st.sampled_from(dtypes)), draw(st.sampled_from(SHAPES))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        least, most = int(limits.min), int(limits.max)
        if not whole_range:  # gymnasium cannot draw from all 64 bits
            least, most = max(least, -(2**52)), min(most, 2**52)
        numbers: Any = st.integers(least, most)
    else:
        most = float(np.finfo(dtype).max) / 4
        numbers = st.floats(-most, most, width=8 * dtype.itemsize)
    ends = [draw(arrays.arrays(dtype, shape, elements=numbers)) for _ in range(2)]
    return spaces.Box(np.minimum(*ends), np.maximum(*ends), shape, dtype)


def contained(space: spaces.Space, action: Any) -> bool:
    """As strict as an environment may be: the type that Gymnasium would have to convert is wrong, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return bool(space.contains(action))


def roundings(dtype: Any, space: spaces.Box) -> Any:
    """The largest error of a number within the bounds that is rounded to a type, subnormal ones too."""
    sizes = np.maximum(abs(space.low.astype(np.float64)), abs(space.high.astype(np.float64)))
    return float(np.finfo(dtype).eps) * sizes + float(np.finfo(dtype).smallest_subnormal)


class Strict(World):
    """Episodes of five steps, and no action that the space does not contain."""

    length, truncates = 5, True

    def __init__(self, space: spaces.Space) -> None:
        self.action_space = space

    def look(self) -> np.ndarray:
        return np.full(2, self.t / 5, np.float32)

    def act(self, action: Any) -> float:
        assert contained(self.action_space, action), f"{action!r} is not in {self.action_space}"
        return 0.5


# -- the codec ---------------------------------------------------------------------------------------------------------


@given(boxes(), st.sampled_from([np.float32, np.float64]), st.data())
def test_whatever_a_network_says_becomes_an_action_of_the_box(space: spaces.Box, kind: Any, data: Any) -> None:
    batch = (4, *space.shape)
    anything = data.draw(arrays.arrays(kind, batch, elements=st.floats(-1e9, 1e9, width=32)))
    within = np.clip(anything, -1, 1)
    for squash, said in ((False, anything), (True, within), (True, np.sign(anything)), (True, 1.001 * within)):
        for action in ActionCodec(space, squash).to_env(said.astype(kind)):
            assert contained(space, np.asarray(action))


@given(boxes(FLOATS))
def test_saturated_actions_are_the_bounds_themselves(space: spaces.Box) -> None:
    codec = ActionCodec(space, squash=True)
    ends = codec.to_env(np.stack([np.full(space.shape, -1.0, np.float32), np.full(space.shape, 1.0, np.float32)]))
    assert np.array_equal(ends[0], space.low)
    error = 4 * roundings(space.dtype, space)
    assert np.all(abs(ends[1].astype(np.float64) - space.high) <= error)


@given(boxes(whole_range=False), st.integers(0, 2**31))
def test_actions_survive_the_way_to_the_network_and_back(space: spaces.Box, seed: int) -> None:
    space.seed(seed)
    action = clipped(np.stack([space.sample() for _ in range(3)]), space)
    codec = ActionCodec(space, squash=True)
    back = codec.to_env(codec.from_env(action).astype(np.float64))
    assert all(contained(space, np.asarray(one)) for one in back)
    slack = 16 * roundings(np.result_type(space.dtype, np.float32), space)
    if np.dtype(space.dtype).kind == "f":
        slack = slack + roundings(space.dtype, space)
    assert np.all(abs(back.astype(np.float64) - action.astype(np.float64)) <= slack + 0.5 * (slack > 0.5))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_choices_have_the_type_of_their_space(dtype: Any) -> None:
    space = spaces.Discrete(100, start=-50, dtype=dtype)
    codec = make_codec(space)
    (action,) = codec.to_env(np.array([99]))
    assert contained(space, action)
    assert action == 49
    assert codec.from_env(np.array([action], dtype)).tolist() == [99]
    several = spaces.MultiDiscrete([100, 3], dtype=dtype, start=[-100, 5])
    (pair,) = make_codec(several).to_env(np.array([[99, 2]]))
    assert contained(several, pair)
    assert make_codec(several).from_env(pair[None]).tolist() == [[99, 2]]
    assert contained(spaces.MultiBinary(2), make_codec(spaces.MultiBinary(2)).to_env(np.ones((1, 2), np.float32))[0])


def test_stored_actions_keep_what_networks_say() -> None:
    for dtype in (np.int8, np.uint8, np.float16):
        assert get_action_dtype(spaces.Box(0, 5, (2,), dtype)) == np.float32
    assert get_action_dtype(spaces.Box(0, 5, (2,), np.float64)) == np.float64
    assert get_action_dtype(spaces.Discrete(100, start=-50, dtype=np.int8)) == np.int64


# -- models ------------------------------------------------------------------------------------------------------------


def saturate(model: Any, sign: float) -> None:
    """Make the policy's actions as extreme as they can be."""
    with torch.no_grad():
        for name, parameter in model.policy.named_parameters():
            if not any(part in name for part in ("critic", "value", "log_std")):
                parameter.mul_(1e3) if parameter.ndim > 1 else parameter.add_(1e3 * sign)


def build(algorithm: str, env: Any) -> Any:
    if algorithm == "PPO":
        return PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu")
    settings_: dict[str, Any] = {"learning_starts": 4, "batch_size": 4, "buffer_size": 64, "seed": 0, "device": "cpu"}
    if algorithm == "SAC":
        return SAC("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, **settings_)
    size = env.action_space.shape
    noise = NormalActionNoise(np.zeros(size), np.full(size, 0.5), dtype=np.float64)
    return TD3("MlpPolicy", env, action_noise=noise, policy_kwargs={"net_arch": [8]}, **settings_)


def check_predictions(model: Any, space: spaces.Space) -> None:
    seen = model.observation_space.sample()
    for deterministic in (True, False):
        assert contained(space, model.predict(seen, deterministic=deterministic)[0])
        for action in model.predict(np.stack([seen] * 3), deterministic=deterministic)[0]:
            assert contained(space, action if isinstance(action, dict) else np.asarray(action))


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=20, **TRAINING)
@given(boxes(whole_range=False), st.sampled_from(["PPO", "SAC", "TD3"]), st.sampled_from([None, -1.0, 1.0]))
def test_models_act_within_any_box(space: spaces.Box, algorithm: str, sign: float | None) -> None:
    model = build(algorithm, DummyVecEnv([lambda: Strict(space)] * 2))
    if sign is not None:
        saturate(model, sign)
        check_predictions(model, space)
    model.learn(16)
    check_predictions(model, space)
    recorded = collect(Strict(space), model, 1)
    assert all(contained(space, np.asarray(action)) for action in recorded.actions)
    if algorithm != "PPO":
        stored = Dataset.from_model(model)
        assert all(contained(space, np.asarray(action)) for action in stored.actions)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=5, **TRAINING)
@given(boxes(whole_range=False), st.integers(-120, 20), st.sampled_from([np.int8, np.int32, np.int64]))
def test_models_act_within_composed_and_numbered_spaces(space: spaces.Box, start: int, dtype: Any) -> None:
    choices = spaces.Discrete(100, start=start, dtype=dtype)
    composed = spaces.Dict(box=space, choice=choices, coins=spaces.MultiBinary(2))
    model = build("PPO", DummyVecEnv([lambda: Strict(composed)] * 2))
    saturate(model, 1.0)
    model.learn(16)
    check_predictions(model, composed)
    settings_: dict[str, Any] = {"learning_starts": 4, "batch_size": 4, "buffer_size": 64, "device": "cpu"}
    greedy = DQN("MlpPolicy", DummyVecEnv([lambda: Strict(choices)] * 2), **settings_)
    greedy.learn(16)
    check_predictions(greedy, choices)
    stored = Dataset.from_model(greedy)
    assert all(contained(choices, action) for action in stored.actions)


class Numbered(Strict):
    observation_space = spaces.Discrete(7)  # type: ignore[assignment]

    def look(self) -> int:
        return self.t


def test_tables_act_in_the_type_of_the_space() -> None:
    space = spaces.Discrete(3, start=-2, dtype=np.int8)
    model = QLearning(Numbered(space), seed=0)
    model.learn(20)
    assert contained(space, model.predict(0)[0])
    assert model.greedy.dtype == np.int8


def test_a_number_alone_arrives_as_an_array_in_another_process_too() -> None:
    space = spaces.Box(-2.1, 2.7, (), np.float32)
    with SubprocVecEnv([lambda: Strict(space)] * 2, start_method="fork") as envs:
        envs.reset()
        envs.step(np.array([2.7, -2.1], np.float32))


# -- wrappers ----------------------------------------------------------------------------------------------------------


@given(boxes(whole_range=False), st.floats(0, 1), st.integers(0, 2**31))
def test_wrappers_that_change_actions_stay_in_the_box(space: spaces.Box, share: float, seed: int) -> None:
    for env in (ActionNoiseWrapper(Strict(space), noise_std=1e3), ActionSmoothingWrapper(Strict(space), share)):
        env.reset(seed=seed)
        for bound in (space.low, space.high, space.high):
            env.step(bound)


@given(boxes([np.dtype(np.float32), np.dtype(np.float64)]))
def test_actions_scaled_as_rllib_does_stay_in_the_box(space: spaces.Box) -> None:
    if np.any(space.low == space.high):
        return
    env: Any = scaled(Strict(space))
    env.reset()
    for bound in (env.action_space.low, env.action_space.high):
        env.step(bound)
