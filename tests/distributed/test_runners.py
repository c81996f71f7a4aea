"""Runners elsewhere, on the plain face: ``n_runners`` and ``transport``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import polyak
from polyak import A2C, DQN, PPO, SAC, TD3, HerReplayBuffer, MaskablePPO, RecurrentPPO
from polyak.callbacks import BaseCallback
from polyak.collecting.exploration import StateDependentExploration
from polyak.distributed.runner_process import Chunk, Order, RunnerProcess
from polyak.distributed.runners import RunnerGroup
from polyak.envs import make_vec_env
from polyak.experience.step import Step
from polyak.noise import NormalActionNoise
from polyak.seeding import rng_state
from tests.compat.rllib_face.test_ray_masks import Strict
from tests.laws.resumption import SaveAt
from tests.pairs import one_of_each
from tests.worlds import World

SMALL: dict[str, Any] = {"seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
TURNS: dict[str, Any] = {**SMALL, "n_steps": 16, "asynchronous": False}
REMEMBERS: dict[str, Any] = {**TURNS, "policy_kwargs": {"net_arch": [8], "memory": "lstm", "memory_size": 8}}
ROLLOUT: dict[str, Any] = {**SMALL, "n_steps": 16, "batch_size": 16, "n_epochs": 2}
REPLAY: dict[str, Any] = {**SMALL, "learning_starts": 20, "batch_size": 8, "buffer_size": 500, "gradient_steps": -1}


class Parts(World):
    """Dict observations, one of them an image, and a Dict of actions."""

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (36, 36, 1), np.uint8), "speed": spaces.Box(-1, 1, (3,), np.float32)}
    )
    action_space = spaces.Dict({"gear": spaces.Discrete(3), "wheel": spaces.Box(-1, 1, (2,), np.float32)})
    length, truncates = 7, True

    def look(self) -> dict[str, np.ndarray]:
        camera = self.np_random.integers(0, 255, (36, 36, 1), np.uint8)
        return {"camera": camera, "speed": self.np_random.uniform(-1, 1, 3).astype(np.float32)}

    def act(self, action: Any) -> float:
        return float(action["wheel"].sum()) * (1 + int(action["gear"]))


class Reaching(World):
    """A point on a line that is to reach a goal."""

    observation_space = spaces.Dict(
        dict.fromkeys(("observation", "achieved_goal", "desired_goal"), spaces.Box(-2, 2, (1,), np.float32))
    )
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    length, truncates = 9, True

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        return -(np.abs(achieved - desired) > 0.2).astype(np.float32).squeeze(-1)

    def begin(self) -> None:
        self.at, self.goal = self.np_random.uniform(-1, 1, (2, 1)).astype(np.float32)

    def look(self) -> dict[str, np.ndarray]:
        return {"observation": self.at.copy(), "achieved_goal": self.at.copy(), "desired_goal": self.goal.copy()}

    def act(self, action: Any) -> float:
        self.at = np.clip(self.at + 0.3 * action, -2, 2).astype(np.float32)
        return float(self.compute_reward(self.at, self.goal, {}))


def strict() -> Strict:
    return Strict({"says": "info"})


def carts() -> Any:
    return make_vec_env("CartPole-v1", n_envs=2)


def noisy(_: Any = None) -> NormalActionNoise:
    return NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))


CASES: dict[str, Any] = {
    "ppo": lambda **o: PPO("MlpPolicy", carts, **ROLLOUT, **o),
    "ppo gSDE": lambda **o: PPO("MlpPolicy", "Pendulum-v1", use_sde=True, sde_sample_freq=4, **ROLLOUT, **o),
    "a2c": lambda **o: A2C("MlpPolicy", "CartPole-v1", **SMALL, **o),
    "recurrent": lambda **o: RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **ROLLOUT, **o),
    "masks": lambda **o: MaskablePPO("MlpPolicy", strict, **ROLLOUT, **o),
    "parts": lambda **o: PPO("MultiInputPolicy", Parts, **ROLLOUT, **o),
    "dqn": lambda **o: DQN("MlpPolicy", carts, **REPLAY, train_freq=3, **o),
    "sac": lambda **o: SAC("MlpPolicy", "Pendulum-v1", **REPLAY, **o),
    "td3": lambda **o: TD3("MlpPolicy", "Pendulum-v1", action_noise=noisy(), **REPLAY, **o),
    "her": lambda **o: SAC("MultiInputPolicy", Reaching, replay_buffer_class=HerReplayBuffer, **REPLAY, **o),
    "overlap": lambda **o: SAC("MlpPolicy", "Pendulum-v1", overlap=True, **REPLAY, **o),
    "pqn": lambda **o: polyak.PQN("MlpPolicy", "CartPole-v1", **SMALL, n_steps=16, batch_size=16, **o),
    "impala": lambda **o: polyak.IMPALA("MlpPolicy", carts, **TURNS, **o),
    "appo": lambda **o: polyak.APPO("MlpPolicy", strict, target_update_interval=2, **TURNS, **o),
    "impala recurrent": lambda **o: polyak.IMPALA("MultiInputPolicy", Parts, **REMEMBERS, **o),
}


def weights(model: Any) -> np.ndarray:
    return model.policy.parameters_to_vector()


class Kept(BaseCallback):
    """Rewards, ends and infos as callbacks see them."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[np.ndarray] = []
        self.infos: list[list[str]] = []

    def _on_step(self) -> bool:
        self.rewards.append(np.array(self.locals["rewards"]))
        self.infos.append(sorted(set().union(*self.locals["infos"])))
        return True


@pytest.mark.parametrize("case", one_of_each(CASES, "ppo gSDE", "masks", "impala recurrent"))
def test_it_trains_and_two_trainings_are_equal(case: str) -> None:
    """Also when the random numbers of this process are at another place, which runners do not draw from."""
    first, second = Kept(), Kept()
    one = CASES[case](n_runners=2, transport="local").learn(150, first)
    other = CASES[case](n_runners=2, transport="local").learn(150, second)
    assert one.n_envs == 2 * one.env.per_runner
    assert one.num_timesteps >= 150
    np.testing.assert_array_equal(first.rewards, second.rewards)
    np.testing.assert_array_equal(weights(one), weights(other))
    assert np.isfinite(weights(one)).all()


def test_runners_do_not_draw_from_the_streams_of_this_process() -> None:
    model = CASES["ppo"](n_runners=2, transport="local").learn(64)
    before = rng_state()[1]
    model.runner.plan(5)
    for _ in range(5):
        model.runner.step()
    for name, state in rng_state()[1].items():
        np.testing.assert_array_equal(state, before[name])


def test_infos_of_episodes_reach_callbacks_and_statistics() -> None:
    kept = Kept()
    model = CASES["ppo"](n_runners=2, transport="local").learn(200, kept)
    assert any("episode" in names for names in kept.infos)
    ended = list(model.ep_info_buffer)
    assert len(ended) >= 4
    assert {"r", "l"} <= set(ended[0])
    assert all(info["r"] == info["l"] for info in ended), "CartPole gives 1 a step"


def test_rows_are_those_that_one_vector_of_the_same_environments_gives() -> None:
    """With actions that are the same in any case: a policy without exploration, one runner."""
    model = CASES["dqn"](n_runners=2, transport="local", exploration_fraction=1e-6, exploration_final_eps=0.0)
    model.learn(60)
    stored = model.replay_buffer
    rows = stored.size()
    for runner in range(2):
        env = make_vec_env("CartPole-v1", n_envs=2)
        env.seed(3 + 1000 * runner)
        observations = env.reset()
        columns = slice(2 * runner, 2 * runner + 2)
        for row in range(rows):
            np.testing.assert_array_equal(stored.observations[row, columns], observations)
            actions = stored.actions[row, columns].squeeze(-1)
            observations, rewards, dones, infos = env.step(actions)
            np.testing.assert_array_equal(stored.rewards[row, columns], rewards)
            np.testing.assert_array_equal(stored.dones[row, columns], dones)
            together = zip(observations, dones, infos, strict=True)
            then = [info["terminal_observation"] if done else seen for seen, done, info in together]
            np.testing.assert_array_equal(stored.next_observations[row, columns], then)


class Requested(NamedTuple):
    """A request that a runner got."""

    order: Order
    handed_out: int
    """Steps that the model had been handed out before."""


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Requested]:
    """Those of a model with one runner here."""
    found: list[Requested] = []
    collect, step, handed_out = RunnerProcess.collect, RunnerGroup.step, [0]

    def noted(self: RunnerProcess, weights: np.ndarray, order: Order) -> Chunk:
        found.append(Requested(order, handed_out[0]))
        return collect(self, weights, order)

    def counted(self: RunnerGroup) -> Step:
        made = step(self)
        handed_out[0] += 1
        return made

    monkeypatch.setattr(RunnerProcess, "collect", noted)
    monkeypatch.setattr(RunnerGroup, "step", counted)
    return found


@pytest.mark.parametrize(("train_freq", "steps"), [(2, 5), (8, 8), ((1, "episode"), 5)])
def test_the_next_steps_are_made_while_the_last_are_learned_from(
    requests: list[Requested], train_freq: Any, steps: int
) -> None:
    """Each transition brings its gradient step, and exploration goes by the number of each step."""
    env = "CartPole-v1" if isinstance(train_freq, tuple) else carts
    options = {**REPLAY, "learning_starts": 0, "train_freq": train_freq, "n_runners": 1, "transport": "local"}
    model = DQN("MlpPolicy", env, steps_per_request=5, **options).learn(160)
    assert model.clock.updates == model.num_timesteps
    for number, (order, handed_out) in enumerate(requests):
        first = number * steps
        assert (order.steps, order.made) == (steps, first * model.n_envs)
        assert handed_out == max(first - steps, 0), "weights are from when the last request but one was used up"
        left = [1 - (first + row) * model.n_envs / 160 for row in range(steps)]
        np.testing.assert_array_equal(order.epsilon, list(map(model.epsilon.schedule, left)))


def test_with_no_steps_in_advance_the_newest_weights_act(requests: list[Requested]) -> None:
    model = CASES["dqn"](n_runners=1, transport="local", steps_per_request=0).learn(60)
    assert [order.steps for order, _ in requests] == [3] * 10
    assert [order.made for order, _ in requests] == [handed_out * model.n_envs for _, handed_out in requests]


def test_noise_is_drawn_where_a_collection_begins_whatever_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    acted: list[bool] = []
    monkeypatch.setattr(StateDependentExploration, "begin", lambda *_: begun.append(len(acted)))
    monkeypatch.setattr(StateDependentExploration, "before", lambda *_: acted.append(True))
    options = {**REPLAY, "learning_starts": 0, "train_freq": 3, "n_runners": 1, "transport": "local"}
    SAC("MlpPolicy", "Pendulum-v1", use_sde=True, steps_per_request=4, **options).learn(18)
    assert begun == list(range(0, len(acted), 3))


RESUMED = list(CASES)


@pytest.mark.parametrize("case", one_of_each(RESUMED, "recurrent", "dqn", "appo", "overlap"))
def test_training_resumes_in_the_middle_of_a_rollout(case: str, tmp_path: Path) -> None:
    whole = CASES[case](n_runners=2, transport="local")

    whole.learn(150, SaveAt(90, tmp_path / "half.zip"))
    recipe = whole.env.recipe
    half = type(whole).load(tmp_path / "half.zip", env=recipe, resume=True, device="cpu")
    assert (half.n_runners, half.transport) == (2, "local")
    half.learn(150 - half.num_timesteps, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(half))
    assert whole.num_timesteps == half.num_timesteps


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: gym.make("CartPole-v1"), "registered name, or a function"),
        (lambda: make_vec_env("CartPole-v1", n_envs=2), "registered name, or a function"),
    ],
)
def test_environments_of_this_process_are_refused(env: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPO("MlpPolicy", env(), n_runners=2, transport="local")


def test_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match="n_runners=-1"):
        PPO("MlpPolicy", "CartPole-v1", n_runners=-1)
    with pytest.raises(ValueError, match="transport='carrier'"):
        PPO("MlpPolicy", "CartPole-v1", n_runners=1, transport="carrier")  # type: ignore[arg-type]


def test_environments_answer_and_are_not_stepped_from_here() -> None:
    model = CASES["ppo"](n_runners=2, transport="local")
    env = model.get_env()
    assert env.get_attr("spec")[3].id == "CartPole-v1"
    with pytest.warns(UserWarning, match="created on the outermost wrapper"):
        env.set_attr("mark", 7, indices=[1, 2])
    assert env.get_attr("mark", indices=[2, 1]) == [7, 7]
    with pytest.raises(RuntimeError, match="stepped by runners"):
        env.step(np.zeros(4, int))


def test_a_model_of_a_dataset_continues_by_runners() -> None:
    data = polyak.experience.collect("Pendulum-v1", None, 100, seed=0)
    model = polyak.AWAC("MlpPolicy", data, n_runners=2, transport="local", batch_size=8, **SMALL).learn(10)
    model.set_env("Pendulum-v1")
    model.learn(60)
    assert model.n_envs == 2
    with pytest.raises(TypeError, match="n_runners"):
        polyak.BC("MlpPolicy", data, n_runners=2)


def test_a_function_with_an_argument_is_given_the_number_of_the_runner() -> None:
    def made(index: int) -> Any:
        return make_vec_env("CartPole-v1", n_envs=1, env_kwargs={"max_episode_steps": 5 + index})

    model = PPO("MlpPolicy", made, n_runners=2, transport="local", **ROLLOUT).learn(64)
    assert sorted({info["l"] for info in model.ep_info_buffer}) == [5, 6]
