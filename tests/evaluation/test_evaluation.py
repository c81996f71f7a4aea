import random
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.normalisation import Normalisation
from polyak.envs.wrappers.frame_stack import VecFrameStack
from polyak.envs.wrappers.monitor import Monitor
from polyak.envs.wrappers.normalize import VecNormalize, detached, sync_envs_normalization
from polyak.envs.wrappers.vec_monitor import VecMonitor
from polyak.evaluation.in_environments import EvaluationResult, evaluate, evaluate_policy
from polyak.evaluation.intervals import interquartile_mean
from tests.worlds import World


class Scripted(World):
    """Episodes of given lengths, one after the other; each step pays ``pay``. Length ``None`` never ends."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))

    def __init__(self, lengths, pay=1.0, success=None):
        self.lengths, self.pays, self.success, self.n_resets = lengths, pay, success, 0

    def begin(self):
        self.length = self.lengths[self.n_resets % len(self.lengths)]
        self.n_resets += 1

    def look(self):
        return np.array([self.np_random.normal()], dtype=np.float32)

    def info(self):
        return {"is_success": self.success} if self.over() and self.success is not None else {}


class Lives(gym.Wrapper):
    """Reports an end at every third step, as EpisodicLifeEnv does at the loss of a life, and doubles the reward."""

    def __init__(self, env):
        super().__init__(env)
        self.over = True

    def reset(self, **kwargs):
        if self.over:
            return self.env.reset(**kwargs)
        return self.env.unwrapped.look(), {}

    def step(self, action):
        obs, reward, done, truncated, info = self.env.step(action)
        self.over = done or truncated
        return obs, 2 * reward, done or self.env.unwrapped.t % 3 == 0, truncated, info


class Player:
    """Ignores observations, and records its calls."""

    def __init__(self):
        self.asked = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        memory = np.zeros(len(observation)) if state is None else state[0] * ~episode_start
        self.asked.append((None if state is None else state[0].copy(), episode_start.copy(), deterministic))
        return np.zeros(len(observation), dtype=int), (memory + 1,)


def vec(*lengths, wrapper=Monitor, **kwargs):
    return DummyVecEnv([lambda each=each: wrapper(Scripted(each, **kwargs)) for each in lengths])


def test_episodes_are_shared_out_among_the_environments():
    """Short episodes must not count more often: 5 episodes over 3 environments are 1 + 2 + 2."""
    _, lengths = evaluate_policy(Player(), vec([1], [10], [4]), n_eval_episodes=5, return_episode_rewards=True)
    assert sorted(lengths) == [1, 4, 4, 10, 10]
    _, lengths = evaluate_policy(Player(), vec([1], [10], [4]), n_eval_episodes=1, return_episode_rewards=True)
    assert lengths == [4]


def test_without_a_monitor_the_wrappers_are_what_is_seen_and_a_warning_says_so():
    env = Lives(Scripted([8]))
    with pytest.warns(UserWarning, match="to evaluate in has no ``Monitor``"):
        returns, lengths = evaluate_policy(Player(), env, n_eval_episodes=4, return_episode_rewards=True)
    assert lengths == [3, 3, 2, 3]
    assert returns == [6.0, 6.0, 4.0, 6.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_policy(Player(), Lives(Scripted([8])), n_eval_episodes=1, warn=False)
        evaluate_policy(Player(), VecMonitor(vec([3], wrapper=lambda env: env)), n_eval_episodes=1)


def test_the_callback_is_called_for_each_counted_step_of_each_environment():
    seen = []
    evaluate_policy(
        Player(), vec([2], [3]), n_eval_episodes=2, callback=lambda names, _: seen.append((names["i"], names["done"]))
    )
    assert seen == [(0, False), (1, False), (0, True), (1, False), (1, True)]


def test_an_endless_episode_is_cut_and_says_so():
    with pytest.warns(UserWarning, match=r"2 of 2 evaluation episodes reached max_steps_per_episode=7"):
        returns, lengths = evaluate_policy(
            Player(), Monitor(Scripted([None])), 2, return_episode_rewards=True, max_steps_per_episode=7
        )
    assert (returns, lengths) == ([7.0, 7.0], [7, 7])


def test_the_cap_does_not_cut_the_other_environments_short():
    """One environment is capped at 4 while the other is in an episode of 3; no episode may be lost or joined."""
    env = vec([None, 2], [3])
    with pytest.warns(UserWarning, match="1 of 4"):
        _, lengths = evaluate_policy(Player(), env, 4, return_episode_rewards=True, max_steps_per_episode=4)
    assert sorted(lengths) == [2, 3, 3, 4]


def test_an_environment_that_is_capped_continues_when_it_ends_by_itself():
    """Steps 5 and 6 of the first environment do not count; its next episode counts, without a reset of both."""
    env = vec([6, 2], [3], wrapper=lambda env: env)
    with pytest.warns(UserWarning, match="1 of 4"):
        result = evaluate(Player(), env, 4, max_steps_per_episode=4)
    assert result.lengths.tolist() == [3, 4, 3, 2]
    assert env.get_attr("n_resets") == [3, 3]


def test_the_cap_counts_the_whole_game_of_several_lives():
    env = Lives(Monitor(Scripted([None])))
    with pytest.warns(UserWarning, match="1 of 1"):
        result = evaluate(Player(), env, 1, max_steps_per_episode=7)
    assert result.n_capped == 1


@pytest.mark.parametrize("kwargs", [{"n_eval_episodes": 0}, {"max_steps_per_episode": 0}])
def test_numbers_out_of_range(kwargs):
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))} must be at least 1, got 0"):
        evaluate_policy(Player(), Monitor(Scripted([1])), **kwargs)
    with pytest.raises(ValueError, match="confidence must lie in"):
        evaluate(Player(), Monitor(Scripted([1])), 1, confidence=95)


# -- evaluate ----------------------------------------------------------------------------------------------------------


class Gambler(Player):
    """Draws from the global generators of python, numpy and torch."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        random.random()
        self.asked.append((float(observation[0, 0]), np.random.rand(), float(torch.rand(()))))
        return np.zeros(len(observation), dtype=int), None


def test_a_seed_repeats_the_evaluation_and_leaves_the_generators_of_a_training_alone():
    runs = []
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state(), random.getstate()
    for seed in (1, 1, 2):
        gambler = Gambler()
        evaluate(gambler, vec([5]), 2, seed=seed)
        runs.append(gambler.asked)
    assert runs[0] == runs[1]
    assert all(set(a).isdisjoint(b) for a, b in zip(runs[0], runs[2], strict=True))
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]


def test_successes():
    assert evaluate(Player(), vec([2], success=True), 3).success_rate == 1.0
    result = evaluate(Player(), vec([2], [3], success=np.bool_(False)), 4)
    assert result.successes.tolist() == [False] * 4
    assert result.success_ci == (0.0, pytest.approx(0.604, abs=5e-4))
    assert "success rate 0.0% (95% interval 0.0% to 60.4%)" in str(result)
    assert evaluate(Player(), vec([2]), 3).successes is None


def test_statistics_against_closed_forms():
    values = np.arange(1.0, 11.0)
    result = EvaluationResult(values, np.ones(10, dtype=int))
    assert (result.mean, result.std) == (5.5, pytest.approx(np.std(values)))
    assert result.iqm == np.mean([3, 4, 5, 6, 7, 8])  # 10 // 4 = 2 cut off at each end
    assert EvaluationResult(np.array([1.0, 2.0, 30.0]), np.ones(3)).iqm == 11.0  # too few to cut any
    assert result.ci[0] < result.mean < result.ci[1]
    outlier = EvaluationResult(np.append(np.tile(values, 4), 1000.0), np.ones(41, dtype=int))  # which the IQM cuts off
    assert outlier.iqm_ci[0] < outlier.iqm < outlier.iqm_ci[1]
    assert outlier.iqm_ci[1] - outlier.iqm_ci[0] < 0.5 * (outlier.ci[1] - outlier.ci[0])
    assert str(result).startswith("mean return 5.50 (95% interval ")


def test_iqm_is_scipys_trimmed_mean():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).normal(size=(5, 23))
    np.testing.assert_allclose(interquartile_mean(values, axis=1), stats.trim_mean(values, 0.25, axis=1))


# -- environments by name ----------------------------------------------------------------------------------------------


def test_names_are_made_in_a_monitor_and_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(DummyVecEnv, "close", lambda self: closed.append(self))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # among them the one of a missing Monitor
        returns, lengths = evaluate_policy(Player(), "CartPole-v1", 2, return_episode_rewards=True)
    assert returns == lengths
    assert len(closed) == 1
    assert evaluate(Player(), "CartPole-v1", 3, seed=1).returns.tolist() == (
        evaluate(Player(), Monitor(gym.make("CartPole-v1")), 3, seed=1).returns.tolist()
    )
    assert len(closed) == 2
    with pytest.raises(ValueError, match="env_id='CartPol-v1' is not a registered environment. Did you mean"):
        evaluate(Player(), "CartPol-v1")


class Balancing(Player):
    """Balances the pole as long as it sees raw observations, or normalises those of ``env`` back to them."""

    def __init__(self, env=None):
        super().__init__()
        self.env = env

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        raw = observation if self.env is None else self.env.unnormalize_obs(observation)
        self.asked.append(observation)
        return (raw[:, 2] + raw[:, 3] > 0).astype(int), None


def test_a_name_is_put_under_the_models_own_normalisation():
    training = VecNormalize(VecMonitor(DummyVecEnv([lambda: gym.make("CartPole-v1")])))
    training.obs_rms.mean[:], training.obs_rms.var[:] = 5.0, 4.0
    before = training.state_dict()
    model = Balancing(training)
    played = evaluate(model, "CartPole-v1", 2, seed=0).returns.tolist()
    assert min(played) > 150
    assert np.mean(model.asked) == pytest.approx(-2.5, abs=0.3)  # (0 - 5) / 2
    assert all(np.array_equal(value, before[name]) for name, value in training.state_dict().items())
    raw = Balancing()
    assert evaluate(raw, "CartPole-v1", 2, seed=0).returns.tolist() == played
    assert np.mean(raw.asked) == pytest.approx(0, abs=0.3)
    # A program that normalises by itself: the statistics are only in the model's file.
    raw.normalisation = Normalisation()
    raw.normalisation.by_itself = False
    raw.normalisation.load(detached(training.state_dict()), ())
    raw.asked.clear()
    evaluate(raw, "CartPole-v1", 2, seed=0)
    assert np.mean(raw.asked) == pytest.approx(-2.5, abs=0.3)


def test_another_normalisation_than_the_one_learned_with_is_said():
    def normalised(**settings):
        return VecNormalize(VecMonitor(DummyVecEnv([lambda: gym.make("CartPole-v1")])), **settings)

    training = normalised()
    training.reset()
    model = Balancing(training)
    model.normalisation = Normalisation()
    model.normalisation.use(training, raw_experience=False)
    frozen = {"training": False, "norm_reward": False}
    for settings, said in (
        ({}, "the VecNormalize of env has seen no data"),
        ({"clip_obs": 2.0}, "that of env has clip_obs=2.0 instead of clip_obs=10.0"),
        ({"norm_obs": False}, "that of env has norm_obs=False instead of norm_obs=True"),
    ):
        env = normalised(**frozen, **settings)
        if settings:
            env.obs_rms, env.ret_rms = training.obs_rms.copy(), training.ret_rms.copy()
        with pytest.warns(UserWarning, match=said):
            evaluate(model, env, 1, seed=0)
    fine = normalised(**frozen)
    sync_envs_normalization(training, fine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, fine, 1, seed=0)
        evaluate(model, training, 1, seed=0)


def test_a_name_with_other_spaces_than_the_models():
    model = Player()
    stacked = VecFrameStack(DummyVecEnv([lambda: gym.make("CartPole-v1")]), 2)
    model.observation_space, model.action_space = stacked.observation_space, stacked.action_space
    with pytest.raises(ValueError, match=r"env='CartPole-v1' does not suit the model. Observation spaces do not match"):
        evaluate(model, "CartPole-v1")


def test_models_are_evaluated_by_name_before_and_after_loading(tmp_path):
    from polyak import PPO

    model = PPO("MlpPolicy", VecNormalize(DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1"))])), n_steps=64, seed=0)
    model.learn(256)
    model.save(tmp_path / "model")
    first = evaluate(model, "CartPole-v1", 5, seed=3)
    alone = evaluate(PPO.load(tmp_path / "model"), "CartPole-v1", 5, seed=3)
    given = evaluate(PPO.load(tmp_path / "model", env="CartPole-v1"), "CartPole-v1", 5, seed=3)
    assert first.returns.tolist() == alone.returns.tolist() == given.returns.tolist()
