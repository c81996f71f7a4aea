"""``VecNormalize`` around environments that runners step: its statistics are those of all of them together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

from polyak import DQN, IMPALA, PPO, SAC
from polyak.callbacks import BaseCallback, EvalCallback
from polyak.distributed.runner_process import RunnerProcess
from polyak.distributed.runners import RemoteEnvs
from polyak.envs import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize, make_vec_env
from polyak.envs.wrappers.running import RunningMeanStd
from polyak.seeding import set_random_seed
from tests.distributed.test_runners import REPLAY, ROLLOUT, TURNS, weights
from tests.pairs import one_of_each
from tests.worlds import World

GUESS = 1e-4
"""The weight of mean 0 and variance 1 before anything was seen."""


class Walk(World):
    """A walk whose episodes do not depend on seeds: it is the same in whatever process."""

    observation_space = spaces.Box(-99, 99, (2,), np.float32)

    def __init__(self, index: int) -> None:
        self.index, self.episode = index, 0

    def begin(self) -> None:
        self.episode += 1
        self.at = float(self.index - self.episode % 3)

    def look(self) -> np.ndarray:
        return np.array([self.at, 3 * self.index + 7], np.float32)

    def act(self, action: Any) -> float:
        self.at += 1.0 if action else -0.5
        return self.at + self.index

    def over(self) -> bool:
        self.truncates = self.at <= 4
        return self.at > 4 or self.t == 6 + self.index


class Noted(DummyVecEnv):
    """Keeps what it has shown and paid."""

    def __init__(self, *indices: int) -> None:
        super().__init__([lambda index=index: Walk(index) for index in indices])  # type: ignore[misc]
        self.shown: list[np.ndarray] = []
        self.paid: list[tuple[np.ndarray, np.ndarray]] = []

    def reset(self) -> Any:
        self.shown.append(np.array(super().reset()))
        return self.shown[-1]

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = super().step_wait()
        self.shown.append(np.array(observations))
        self.paid.append((np.array(rewards), np.array(dones)))
        return observations, rewards, dones, infos


def known(*indices: int, **how: Any) -> VecNormalize:
    """Statistics that were brought from elsewhere."""
    env = VecNormalize(Noted(*indices), gamma=0.9, **how)
    env.obs_rms.mean, env.obs_rms.var, env.ret_rms.var = np.array([1.0, 6.0]), np.array([4.0, 9.0]), np.array(5.0)
    return env


def fresh(index: int) -> VecNormalize:
    return VecNormalize(Noted(2 * index, 2 * index + 1), gamma=0.9)


def ppo(env: Any = fresh, **options: Any) -> Any:
    return PPO("MlpPolicy", env, **{"n_runners": 2, "transport": "local", **ROLLOUT, **options})


def sac(env: Any, **options: Any) -> Any:
    return SAC("MlpPolicy", env, **{"n_runners": 2, "transport": "local", **REPLAY, **options})


def pendulums() -> VecNormalize:
    return VecNormalize(make_vec_env("Pendulum-v1", n_envs=2))


MAKES: dict[str, Any] = {
    "ppo": ppo,
    "sac": lambda **options: sac(pendulums, **options),
    "impala": lambda **options: IMPALA("MlpPolicy", fresh, n_runners=2, transport="local", **TURNS, **options),
}


def of_runners(model: Any) -> list[RunnerProcess]:
    return model.env.unwrapped.workers._objects


class Reseeded(BaseCallback):
    """Batches are drawn alike, whatever was drawn while acting."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        set_random_seed(self.num_timesteps)


def greedy(env: Any, n_runners: int, **options: Any) -> Any:
    """DQN that takes the best actions: no random stream decides what it learns from."""
    options = {**REPLAY, "learning_starts": 0, "exploration_initial_eps": 0.0, "exploration_final_eps": 0.0, **options}
    options["steps_per_request"] = 0
    return DQN("MlpPolicy", env, n_runners=n_runners, transport="local", train_freq=2, **options).learn(160, Reseeded())


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen statistics", "no normalisation"])
def test_with_frozen_statistics_two_runners_learn_what_one_process_learns(frozen: bool) -> None:
    """As they do without normalisation, of environments and a policy that draw nothing."""
    wrap: Any = (lambda *indices: known(*indices, training=False)) if frozen else Noted
    here = greedy(wrap(0, 1, 2, 3), 0)
    elsewhere = greedy(lambda index: wrap(2 * index, 2 * index + 1), 2)
    np.testing.assert_array_equal(elsewhere.replay_buffer.observations, here.replay_buffer.observations)
    np.testing.assert_array_equal(elsewhere.replay_buffer.rewards, here.replay_buffer.rewards)
    np.testing.assert_array_equal(weights(elsewhere), weights(here))
    if frozen:
        ours, theirs = (model.get_vec_normalize_env() for model in (elsewhere, here))
        assert ours.same_statistics(theirs)
        assert not ours.training
        assert np.abs(here.replay_buffer.observations).max() > 6, "stored as they were before normalisation"


def test_one_runner_learns_to_the_bit_what_one_process_learns_from_moving_statistics() -> None:
    make: Any = lambda: VecNormalize(Noted(*range(7)), gamma=0.9)  # noqa: E731
    here, elsewhere = greedy(make(), 0), greedy(make, 1)
    assert elsewhere.get_vec_normalize_env().same_statistics(here.get_vec_normalize_env())
    np.testing.assert_array_equal(weights(elsewhere), weights(here))


@pytest.mark.parametrize("case", ["ppo", "impala"])
def test_statistics_are_those_of_one_pass_over_all_that_was_seen(case: str) -> None:
    model = MAKES[case]().learn(300)
    model.runner.reset()  # so that rollouts that IMPALA has not learned from are counted; what this shows is not yet
    noted = [runner.made.unwrapped for runner in of_runners(model)]
    shown = np.concatenate([rows for env in noted for rows in env.shown[:-1]])
    returns = []
    for env in noted:
        running = np.zeros(2)
        for rewards, dones in env.paid:
            running = 0.9 * running + rewards
            returns.append(running.copy())
            running[dones] = 0.0
    ours = model.get_vec_normalize_env()
    for rows, found in ((shown, ours.obs_rms), (np.concatenate(returns), ours.ret_rms)):
        total = len(rows) + GUESS
        mean = rows.sum(0, dtype=np.float64) / total
        variance = (((rows - mean) ** 2).sum(0) + GUESS * (1 + mean**2)) / total
        bound = 16 * np.finfo(np.float64).eps * len(rows) * (1 + np.abs(rows).max() ** 2)
        assert found.count == pytest.approx(total, abs=1e-9)
        np.testing.assert_allclose(found.mean, mean, rtol=0, atol=bound)
        np.testing.assert_allclose(found.var, variance, rtol=0, atol=bound)


def test_each_is_sent_what_all_have_seen_and_the_settings() -> None:
    model = ppo().learn(128)
    ours = model.get_vec_normalize_env()
    assert model.get_env() is ours
    ours.training, ours.clip_obs = False, 0.5
    before = ours.state_dict()
    model.learn(64)
    for runner in of_runners(model):
        assert runner.normalizer.same_statistics(ours)
        assert not runner.normalizer.training
    np.testing.assert_equal({**ours.state_dict(), "returns": 0}, {**before, "returns": 0})
    assert np.abs(model.rollout_buffer.observations).max() == 0.5


def test_experience_is_stored_raw_where_it_is_replayed_and_callbacks_see_it_normalised() -> None:
    seen = []
    model = sac(pendulums).learn(100, lambda names, _: seen.append(np.array(names["new_obs"])) is None)
    stored, ours = model.replay_buffer, model.get_vec_normalize_env()
    assert model._vec_normalize_env is ours
    norms = np.hypot(stored.observations[: stored.pos, :, 0], stored.observations[: stored.pos, :, 1])
    np.testing.assert_allclose(norms, 1.0, rtol=1e-6)
    np.testing.assert_array_equal(model._last_obs, ours.normalize_obs(model._last_original_obs))
    np.testing.assert_array_equal(model._last_obs, seen[-1])


@pytest.mark.parametrize("case", one_of_each(MAKES, "sac"))
def test_training_resumes_exactly_in_the_middle(case: str, tmp_path: Path) -> None:
    whole = MAKES[case]()

    def save(names: dict[str, Any], _: Any) -> bool:
        model = names["self"]
        if 90 <= model.num_timesteps < 90 + model.n_envs:
            model.save(tmp_path / "half.zip", include=model.saves_also)
        return True

    whole.learn(180, save)
    recipe = whole.env.unwrapped.recipe
    half = type(whole).load(tmp_path / "half.zip", env=recipe, resume=True, device="cpu")
    half.learn(180 - half.num_timesteps, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(half))
    assert half.get_vec_normalize_env().same_statistics(whole.get_vec_normalize_env())


def test_first_observations_that_were_not_sent_yet_are_in_the_file(tmp_path: Path) -> None:
    whole = ppo().learn(64)
    whole.runner.reset()
    whole.save(tmp_path / "reset.zip")
    half = PPO.load(tmp_path / "reset.zip", env=fresh, resume=True, device="cpu")
    for model in (whole, half):
        model.learn(64, reset_num_timesteps=False)
    assert half.get_vec_normalize_env().same_statistics(whole.get_vec_normalize_env())
    assert whole.get_vec_normalize_env().obs_rms.count == pytest.approx(128 + 4 + 4, abs=0.01)


def test_statistics_stay_as_they_are_to_the_bit_where_nothing_was_seen() -> None:
    for count in (0.1, 3.0, 7.0, 49.0):
        statistics = RunningMeanStd(count, (3,))
        statistics.var = np.array([0.1, 1 / 3, 0.7])
        statistics.combine(RunningMeanStd(0.0, (3,)))
        np.testing.assert_array_equal(statistics.var, [0.1, 1 / 3, 0.7])


def test_statistics_of_a_file_are_used_where_runners_bring_none(tmp_path: Path) -> None:
    model = ppo().learn(64)
    model.save(tmp_path / "model.zip")
    model.get_vec_normalize_env().save(tmp_path / "statistics.npz")
    bare = lambda index: Noted(2 * index, 2 * index + 1)  # noqa: E731
    loaded = PPO.load(tmp_path / "model.zip", env=bare, device="cpu")
    ours = loaded.get_vec_normalize_env()
    assert ours.same_statistics(model.get_vec_normalize_env())
    count = ours.obs_rms.count
    loaded.learn(64, reset_num_timesteps=False)
    assert ours.obs_rms.count == count + 64 + 4
    again = VecNormalize.load(tmp_path / "statistics.npz", RemoteEnvs(bare, 2, "local"))
    other = ppo(again).learn(64)
    assert other.get_vec_normalize_env() is again
    assert again.obs_rms.count == count + 64 + 4


def test_evaluation_takes_the_statistics_of_all(tmp_path: Path) -> None:
    other = VecNormalize(VecMonitor(Noted(9)), training=False, norm_reward=False)
    ppo().learn(128, callback := EvalCallback(other, eval_freq=32, n_eval_episodes=1, verbose=0))
    assert other.obs_rms.count == callback.model.get_vec_normalize_env().obs_rms.count
    assert np.isfinite(callback.last_mean_reward)


def test_algorithms_with_shards_normalise_what_runners_bring() -> None:
    model = sac(pendulums, n_replay_shards=2, steps_per_request=0).learn(80)
    assert model.get_vec_normalize_env().obs_rms.count == pytest.approx(84, abs=0.01)
    assert np.isfinite(weights(model)).all()


def test_a_runner_in_the_place_of_another_continues_from_what_all_have_seen() -> None:
    model = ppo().learn(64)
    ours, workers = model.get_vec_normalize_env(), model.env.unwrapped.workers
    workers._objects[1] = RunnerProcess(cloudpickle.dumps(fresh), 1, 3, False)
    model.runner._renewed(1)
    assert workers._objects[1].normalizer.obs_rms.count == ours.obs_rms.count + 2, "and its first observations"
    before = ours.obs_rms.count
    workers._answers.clear()
    model.learn(64, reset_num_timesteps=False)
    assert ours.obs_rms.count == before + 64 + 2


class Doubled(VecNormalize):
    """Scales in a way of its own."""

    def _normalize_obs(self, obs: Any, statistics: Any) -> Any:
        return 2 * super()._normalize_obs(obs, statistics)


def test_a_class_of_a_users_own_is_used_everywhere() -> None:
    model = ppo(lambda: Doubled(Noted(0, 1), clip_obs=3.0)).learn(64)
    ours = model.get_vec_normalize_env()
    assert type(ours).__name__ == "Doubled"
    assert np.abs(model.rollout_buffer.observations).max() > 3


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: VecFrameStack(fresh(0), 2), "VecFrameStack stands around VecNormalize"),
        (lambda: VecNormalize(fresh(0)), "around another VecNormalize"),
    ],
)
def test_what_a_model_could_not_repeat_is_refused(env: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ppo(env)


def test_two_normalisers_are_refused() -> None:
    with pytest.raises(ValueError, match="have a VecNormalize of their own"):
        ppo(VecNormalize(RemoteEnvs(fresh, 2, "local")))
    with pytest.raises(ValueError, match=r"lambda: VecNormalize\(make_vec_env"):
        ppo(fresh(0))
