"""A curriculum of goals: its densities by brute force, what environments are asked for, and that it is resumed."""

from __future__ import annotations

import copy
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import polyak
from polyak.envs import (
    BitFlippingEnv,
    DummyVecEnv,
    IdentityEnvBox,
    SubprocVecEnv,
    VecGoalCurriculum,
    VecNormalize,
    make_vec_env,
)
from polyak.envs.wrappers.goal_curriculum import log_density, share_of_own

LINE = spaces.Box(-99.0, 99.0, (1,), np.float32)
OWN = 50.0


class Line(gym.Env[dict[str, np.ndarray], np.ndarray]):
    """A point that actions move along a line, for as many steps as one says; its own goal is far away."""

    observation_space = spaces.Dict(observation=LINE, achieved_goal=LINE, desired_goal=LINE)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.wants = np.full(1, OWN, np.float32)

    def _look(self) -> dict[str, np.ndarray]:
        here = np.array([self.at], np.float32)
        return {"observation": here, "achieved_goal": here.copy(), "desired_goal": self.wants.copy()}

    def set_goal(self, goal: np.ndarray) -> None:
        self.wants = goal

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at, self.time, self.wants = 0.0, 0, np.full(1, OWN, np.float32)
        return self._look(), {}

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        return -(np.abs(achieved - desired)[..., 0] > 0.5).astype(np.float32)

    def step(self, action: np.ndarray) -> Any:
        self.at += float(action[0])
        self.time += 1
        look = self._look()
        return (
            look,
            float(self.compute_reward(look["achieved_goal"], self.wants, {})),
            False,
            self.time == self.length,
            {},
        )


class ByAttribute(gym.Env[dict[str, np.ndarray], np.ndarray]):
    """The same with an attribute ``goal`` and no method, as environments of Gymnasium-Robotics have it."""

    observation_space, action_space = Line.observation_space, Line.action_space

    def __init__(self) -> None:
        self.line, self.goal = Line(), np.full(1, OWN, np.float32)

    def reset(self, **options: Any) -> Any:
        super().reset(seed=options.get("seed"))
        self.goal = np.full(1, OWN, np.float32)
        return self.line.reset(**options)

    def step(self, action: np.ndarray) -> Any:
        self.line.wants = self.goal
        return self.line.step(action)


class Deaf(Line):
    """Takes goals, and wants its own all the same."""

    def set_goal(self, goal: np.ndarray) -> None:
        pass


def curriculum(*lengths: int, env: Any = Line, **options: Any) -> VecGoalCurriculum:
    made = VecGoalCurriculum(DummyVecEnv([lambda n=n: env(n) for n in lengths]), **{"offset": np.inf, **options})
    made.seed(0)
    return made


# -- densities ---------------------------------------------------------------------------------------------------------


def test_the_density_is_the_mean_of_gaussians() -> None:
    rng = np.random.default_rng(0)
    goals, centres, deviation = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)), 0.4
    expected = [
        np.mean([np.prod([np.exp(-((x - c) ** 2) / (2 * deviation**2)) / (deviation * np.sqrt(2 * np.pi))
                          for x, c in zip(goal, centre, strict=True)]) for centre in centres])
        for goal in goals
    ]  # fmt: skip
    np.testing.assert_allclose(np.exp(log_density(goals, centres, deviation)), expected, rtol=1e-9)


def test_the_density_far_from_all_kernels_is_tiny_and_finite() -> None:
    far = log_density(np.array([[1e3]]), np.zeros((4, 1)), 0.1)
    assert far[0] == pytest.approx(-(1e6) / 0.02 - np.log(0.1 * np.sqrt(2 * np.pi)), rel=1e-9)


@pytest.mark.parametrize(
    ("divergence", "offset", "share"), [(0.0, -3.0, 1.0), (4.0, -3.0, 1.0), (5.0, -3.0, 0.5), (3.0, 1.0, 0.25)]
)
def test_own_goals_are_rarer_the_less_they_are_covered(divergence: float, offset: float, share: float) -> None:
    assert share_of_own(divergence, offset) == share


def test_the_rarest_candidate_is_asked_for() -> None:
    env = curriculum(3, candidates=6, kernels=8)
    rows = np.random.default_rng(1).normal(size=(40, 1)).astype(np.float32)
    env.achieved.add(rows)
    rng = copy.deepcopy(env._rng)
    found = env.rare(2)
    drawn = rows[rng.integers(40, size=12)].astype(np.float64)
    kernels = rows[rng.integers(40, size=8)].astype(np.float64)
    spread = rows.std(dtype=np.float64)
    density = np.exp(-(((drawn - kernels.T) / spread / 0.1) ** 2) / 2).mean(1).reshape(2, 6)
    np.testing.assert_array_equal(found[:, 0], drawn.reshape(2, 6)[[0, 1], density.argmin(1)])


def test_the_divergence_is_that_of_both_estimates() -> None:
    """With one own goal, and all that was achieved in one place, at distance d of it: a quotient of two Gaussians."""
    env = curriculum(3)
    env.own.add(np.full((5, 1), 0.25))
    env.achieved.add(np.zeros((9, 1)))
    assert env.divergence() == pytest.approx((0.25 / 0.1) ** 2 / 2)
    env.offset = -3.0
    assert env.share_of_own() == pytest.approx(1.0)  # 3.125 nats
    env.bandwidth = 0.05
    assert env.share_of_own() == pytest.approx(1 / (12.5 - 3))


def test_only_the_newest_goals_are_kept() -> None:
    env = curriculum(3, capacity=4)
    for row in range(6):
        env.achieved.add(np.full((1, 1), row))
    assert sorted(env.achieved.rows[:, 0]) == [2, 3, 4, 5]
    assert len(env.achieved) == 4


# -- environments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [Line, BitFlippingEnv, ByAttribute])
def test_what_is_asked_for_is_what_observations_show(env: Any) -> None:
    made = VecGoalCurriculum(DummyVecEnv([lambda: env(), lambda: env()]), offset=np.inf)
    made.seed(0)
    observations: Any = made.reset()
    own = observations["desired_goal"].copy()
    rng, seen, ended = np.random.default_rng(0), [], 0
    for _ in range(40):
        wanted = observations["desired_goal"].copy()
        moves = [made.action_space.sample() for _ in range(2)] if env is BitFlippingEnv else rng.uniform(-1, 1, (2, 1))
        observations, _, dones, infos = made.step(np.asarray(moves))
        for index in range(2):
            last = (
                infos[index]["terminal_observation"] if dones[index] else {k: v[index] for k, v in observations.items()}
            )
            np.testing.assert_array_equal(last["desired_goal"], wanted[index])
            seen.append(last["achieved_goal"])
            if dones[index]:
                ended += 1
                assert infos[index]["own_goal"] == (ended <= 2)
                assert any(np.array_equal(observations["desired_goal"][index], goal) for goal in seen)
    assert ended > 4
    np.testing.assert_array_equal(made.achieved.rows[: len(made.achieved)], np.array(seen))
    np.testing.assert_array_equal(made.own.rows[: len(made.own)], np.tile(own[:1], (len(made.own), 1)))


def test_episodes_of_other_lengths_begin_by_themselves() -> None:
    env = curriculum(2, 5)
    env.reset()
    before: Any = None
    for step in range(1, 20):
        observations, _, dones, _ = env.step(np.ones((2, 1)))
        assert dones.tolist() == [step % 2 == 0, step % 5 == 0]
        assert isinstance(observations, dict)
        for index in range(2):
            if before is not None and not dones[index]:
                assert observations["desired_goal"][index] == before[index]
        before = observations["desired_goal"]
    assert before.max() <= 5


def test_own_goals_stay_where_the_offset_is_low() -> None:
    env = curriculum(2, offset=-np.inf)
    env.reset()
    for _ in range(9):
        observations, _, _, _ = env.step(np.ones((1, 1)))
        assert isinstance(observations, dict)
        assert observations["desired_goal"].item() == OWN


def test_workers_are_asked_as_environments_here_are() -> None:
    found = []
    for cls, kwargs in ((DummyVecEnv, None), (SubprocVecEnv, {"start_method": "fork"})):
        env = VecGoalCurriculum(
            make_vec_env(Line, n_envs=2, seed=0, vec_env_cls=cls, vec_env_kwargs=kwargs), offset=np.inf
        )
        env.seed(0)
        env.reset()
        rng = np.random.default_rng(3)
        steps: list[Any] = [env.step(rng.uniform(-1, 1, (2, 1)))[0] for _ in range(12)]
        found.append([step["desired_goal"] for step in steps])
        env.close()
    np.testing.assert_array_equal(*found)


# -- refusals ----------------------------------------------------------------------------------------------------------


class NoWay(ByAttribute):
    """Its goal can be set in no way."""

    def __init__(self) -> None:
        super().__init__()
        del self.goal

    def reset(self, **options: Any) -> Any:
        return self.line.reset(**options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DummyVecEnv([IdentityEnvBox]), "Give the environment goals"),
        (lambda: DummyVecEnv([lambda: BitFlippingEnv(discrete_obs_space=True)]), "a Box of one dimension"),
        (lambda: VecNormalize(DummyVecEnv([Line])), "VecNormalize(VecGoalCurriculum(venv))"),
        (lambda: DummyVecEnv([NoWay]), "set_goal(goal), which sets"),
    ],
)
def test_environments_without_goals_to_set_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        VecGoalCurriculum(make())


def test_an_environment_that_keeps_its_own_goal_is_refused() -> None:
    env = curriculum(2, env=Deaf)
    env.reset()
    with pytest.raises(ValueError, match=r"asked for the goal .* after a step its 'desired_goal' is \[50"):
        for _ in range(9):
            env.step(np.ones((1, 1)))


@pytest.mark.parametrize(
    "wrong", [{"candidates": 0}, {"kernels": 0}, {"capacity": 0}, {"bandwidth": 0.0}, {"offset": np.nan}]
)
def test_arguments_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        curriculum(2, **wrong)


# -- training ----------------------------------------------------------------------------------------------------------


def model_in(env: Any) -> Any:
    return polyak.DDPG(
        "MultiInputPolicy",
        env,
        replay_buffer_class=polyak.HerReplayBuffer,
        learning_starts=20,
        batch_size=8,
        buffer_size=200,
        policy_kwargs={"net_arch": [8]},
        seed=0,
        device="cpu",
        compile=False,
    )


def test_a_training_with_it_is_resumed_exactly(tmp_path: Any) -> None:
    def make() -> Any:
        return VecNormalize(VecGoalCurriculum(make_vec_env(lambda: Line(4), n_envs=2), offset=-2.0))

    whole = model_in(make()).learn(50)
    whole.save(tmp_path / "half", include=["replay_buffer"])
    whole.learn(50, reset_num_timesteps=False)
    resumed = polyak.DDPG.load(tmp_path / "half", env=make(), resume=True, device="cpu")
    resumed.learn(50, reset_num_timesteps=False)
    for name, weights in whole.policy.state_dict().items():
        np.testing.assert_array_equal(weights.numpy(), resumed.policy.state_dict()[name].numpy())
    ours, theirs = (model.get_env().venv for model in (whole, resumed))
    np.testing.assert_array_equal(ours.achieved.rows, theirs.achieved.rows)
    np.testing.assert_array_equal(ours.keeps_own, theirs.keeps_own)
    assert len({*ours.asked.ravel().tolist()}) > 1
