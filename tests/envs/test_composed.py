"""Nested observations by the names of their parts, and actions of Dict and Tuple spaces through vector environments."""

import pickle
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak import PPO
from polyak.collecting.runner import Acted, Runner
from polyak.envs import (
    DummyVecEnv,
    GymVectorEnv,
    Monitor,
    NamedObservation,
    SubprocVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecNamedObservation,
    VecNormalize,
    VecTransposeImage,
    as_vec_env,
    is_vecenv_wrapped,
    make_vec_env,
)
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.nan_checks import NonFiniteError
from polyak.envs.nested_spaces import as_named, by_name, parts_by_name
from polyak.nn import ActorCriticPolicy
from tests.pairs import one_of_each
from tests.worlds import Drawn

NESTED = spaces.Dict(
    camera=spaces.Dict(
        left=spaces.Box(0, 255, (40, 44, 3), np.uint8),
        right=spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))),
    ),
    goal=spaces.Box(-1, 1, (2,)),
)
TUPLE = spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Dict(a=spaces.MultiBinary(3))))
PLAIN = spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=1)))
ACTIONS = spaces.Dict(button=spaces.Discrete(3, start=1), arm=spaces.Tuple((spaces.Box(-1, 1, (2,)),)))
NAMES = ["camera/left", "camera/right/0", "camera/right/1", "goal"]


class Shown(Drawn):
    """Shows samples of its space, keeps the actions that it got, and is cut short after five steps."""

    length, truncates, pays = 5, True, 1.0

    def __init__(self, observation_space: spaces.Space = NESTED, action_space: spaces.Space = ACTIONS) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.got: list[Any] = []

    def look(self) -> Any:
        self.seen = super().look()
        return self.seen

    def act(self, action: Any) -> float:
        assert self.action_space.contains(action), action
        self.got.append(action)
        return 1.0

    def info(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def last(self) -> Any:
        return self.got[-1]


# -- observations ------------------------------------------------------------------------------------------------------


def test_parts_have_names() -> None:
    env = NamedObservation(Shown())
    assert list(env.observation_space.spaces) == NAMES
    assert env.observation_space["camera/right/1"] == spaces.Discrete(3)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert obs["camera/right/0"] is env.unwrapped.seen["camera"]["right"][0]


def test_names_must_differ() -> None:
    clash = spaces.Dict({"a": spaces.Dict(b=spaces.Discrete(2)), "a/b": spaces.Discrete(2)})
    with pytest.raises(ValueError, match=r"the same name 'a/b', those at \('a', 'b'\) and \('a/b',\)"):
        PPO("MultiInputPolicy", Shown(clash))
    with pytest.raises(ValueError, match="no parts"):
        parts_by_name(spaces.Dict(a=spaces.Dict()))


@pytest.mark.parametrize("make", one_of_each(["single", "dummy", "subproc", "sync"], "dummy", "sync"))
def test_however_environments_are_made(make: str) -> None:
    if make == "single":
        venv = as_vec_env(Shown())
    elif make == "sync":
        mode = gym.vector.AutoresetMode.SAME_STEP
        venv = as_vec_env(gym.vector.SyncVectorEnv([Shown] * 2, autoreset_mode=mode))
    else:
        venv = as_vec_env(make_vec_env(Shown, 2, vec_env_cls={"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[make]))
    try:
        assert list(venv.observation_space.spaces) == NAMES
        assert venv.observation_space["camera/left"].shape == (3, 40, 44), "images are channels-first"
        venv.seed(0)
        obs = venv.reset()
        n = venv.num_envs
        assert {name: part.shape for name, part in obs.items()} == {
            name: (n, *part.shape) for name, part in venv.observation_space.spaces.items()
        }
        space = venv.action_space
        for _ in range(5):
            action = [space.sample() for _ in range(n)]
            obs, _, dones, infos = venv.step(action)
        assert dones.all()
        for info in infos:
            final = info["terminal_observation"]
            assert venv.observation_space.contains(final)
            np.testing.assert_array_equal(final["goal"], info["seen"]["goal"])
            np.testing.assert_array_equal(final["camera/left"], np.moveaxis(info["seen"]["camera"]["left"], -1, 0))
        np.testing.assert_equal([last["button"] for last in venv.env_method("last")], [a["button"] for a in action])
    finally:
        venv.close()


@pytest.mark.parametrize("space", [TUPLE, PLAIN])
def test_tuples_at_the_top(space: spaces.Space) -> None:
    venv = as_vec_env(DummyVecEnv([lambda: Shown(PLAIN)])) if space is PLAIN else as_vec_env(Shown(space))
    assert is_vecenv_wrapped(venv, VecNamedObservation) == (space is PLAIN)
    assert list(venv.observation_space.spaces) == (["0", "1"] if space is PLAIN else ["0", "1/a"])
    obs = venv.reset()
    assert obs["0"].shape == (1, 2)
    for _ in range(5):
        obs, _, _, infos = venv.step([venv.action_space.sample()])
    assert venv.observation_space.contains(infos[0]["terminal_observation"])


def test_vectors_of_nested_observations_name_the_wrapper() -> None:
    with pytest.raises(NotImplementedError, match=r"entry 'camera' is .*polyak\.envs\.NamedObservation"):
        DummyVecEnv([Shown])


def test_wrappers_see_one_level() -> None:
    venv = VecNormalize(make_vec_env(Shown, 2), norm_obs_keys=["camera/right/0", "goal"])
    venv.reset()
    assert set(venv.obs_rms) == {"camera/right/0", "goal"}
    images = spaces.Dict(camera=spaces.Dict(left=NESTED["camera"]["left"]), goal=NESTED["goal"])
    stacked = VecFrameStack(VecTransposeImage(make_vec_env(Shown, 2, env_kwargs={"observation_space": images})), 3)
    assert stacked.observation_space["camera/left"].shape == (9, 40, 44)
    assert stacked.reset()["camera/left"].shape == (2, 9, 40, 44)


@pytest.mark.parametrize("space", [NESTED, TUPLE, PLAIN])
def test_models_take_observations_as_the_environment_has_them(space: spaces.Space) -> None:
    env = Shown(space)
    venv = as_vec_env(env)
    policy = ActorCriticPolicy(venv.observation_space, ACTIONS)
    obs, _ = env.reset(seed=0)
    expected, _ = policy.predict(by_name(obs), deterministic=True)
    found, _ = policy.predict(obs, deterministic=True)
    np.testing.assert_equal(found, expected)
    batch = gym.vector.utils.concatenate(space, [obs] * 3, gym.vector.utils.create_empty_array(space, 3))
    several, _ = policy.predict(batch, deterministic=True)
    assert isinstance(several, list)
    assert policy.is_vectorized_observation(batch)
    for action in several:
        assert action["button"] == expected["button"]
    with pytest.raises(ValueError, match=r"tuple \(obs, info\)"):
        policy.predict((obs, {}))


def test_statistics_fit_nested_observations(tmp_path: Any) -> None:
    space = spaces.Dict(a=spaces.Dict(b=spaces.Box(-5, 5, (2,))), c=spaces.Box(-5, 5, (1,)))
    venv = VecNormalize(make_vec_env(Shown, 2, env_kwargs={"observation_space": space}))
    model = PPO("MultiInputPolicy", venv, n_steps=32, batch_size=32, seed=0, device="cpu").learn(64)
    model.save(tmp_path / "model.zip")
    loaded = PPO.load(tmp_path / "model.zip", device="cpu")
    obs = Shown(space).reset(seed=1)[0]
    expected, _ = model.predict(venv.normalize_obs(by_name(obs)), deterministic=True)
    np.testing.assert_equal(loaded.predict(obs, deterministic=True)[0], expected)


def test_other_observations_are_left_alone() -> None:
    flat = spaces.Dict(a=spaces.Discrete(2))
    assert as_named({"b": {"c": 1}}, flat) == {"b": {"c": 1}}
    assert as_named((1, 2), spaces.Discrete(3)) == (1, 2)
    observation = {"a": 1}
    assert as_named(observation, flat) is observation


# -- actions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector_class", [DummyVecEnv, partial(SubprocVecEnv, n_workers=2)])
def test_a_list_of_actions_reaches_the_environments(vector_class: Any) -> None:
    venv = vector_class([partial(Shown, spaces.Discrete(2))] * 2)
    try:
        venv.reset()
        actions = [ACTIONS.sample() for _ in range(2)]
        venv.step(actions)
        np.testing.assert_equal(venv.env_method("last"), actions)
        with pytest.raises(
            ValueError, match="must be a list with one action for each of the 2 environments, got a dict"
        ):
            venv.step(actions[0])
    finally:
        venv.close()


@pytest.mark.parametrize("space", [ACTIONS, spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,))))])
def test_a_vector_of_one_takes_its_environments_own_action(space: spaces.Space) -> None:
    venv = DummyVecEnv([lambda: Shown(spaces.Discrete(2), space)])
    venv.reset()
    action = space.sample()
    for given in (action, [action]):
        venv.step(given)
        assert venv.envs[0].got[-1] is action


def test_numbers_that_are_not_finite_are_found_in_composed_actions() -> None:
    venv = DummyVecEnv([lambda: Shown(spaces.Discrete(2))] * 2)
    bad = [{"button": np.int64(1), "arm": (np.array([0, x], np.float32),)} for x in (0, np.nan)]
    acted = Acted(bad, np.array([[0, 0, 0], [0, 0, np.nan]], np.float32), {})
    actor: Any = SimpleNamespace(act=lambda *_: acted)
    with pytest.raises(NonFiniteError, match="action of environment 1 in step 1, entry 2 is nan"):
        Runner(FromVecEnv(venv), actor).step()
    assert not any(env.got for env in venv.envs), "none is sent"
    checked = VecCheckNan(venv, raise_exception=True)
    checked.reset()
    with pytest.raises(ValueError, match=r"nan in actions\['arm'\]\[0\] of environment 1\."):
        checked.step_async(bad)


def test_wrapped_environments_can_be_copied() -> None:
    venv = pickle.loads(pickle.dumps(as_vec_env(Monitor(Shown(TUPLE)))))
    assert venv.reset()["0"].shape == (1, 2)


def test_stacked_actions_reach_gymnasiums_vectors() -> None:
    venv = GymVectorEnv(gym.vector.SyncVectorEnv([partial(Shown, spaces.Discrete(2))] * 2, autoreset_mode="SameStep"))
    venv.reset()
    actions = [ACTIONS.sample() for _ in range(2)]
    venv.step(actions)
    np.testing.assert_equal([env.unwrapped.got[-1] for env in venv.env.envs], actions)
