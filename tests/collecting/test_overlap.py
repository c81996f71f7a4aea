"""``overlap=True``: environments step during gradient steps, with the policy exactly one update behind."""

import copy
import random
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak import DDPG, DQN, SAC, TD3
from polyak.callbacks.callback import BaseCallback, ConvertCallback
from polyak.envs import DummyVecEnv, SubprocVecEnv, VecNormalize
from polyak.envs.testing import BitFlippingEnv
from polyak.experience import HerReplayBuffer, PrioritizedReplayBuffer
from polyak.noise import OrnsteinUhlenbeckActionNoise
from tests.pairs import one_of_each

GREEDY = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}
STEPS = 60


class Sleepy(gym.Env):
    """Counts its steps; each takes a time that no seed decides. Notes actions and when it stepped.

    Args:
        continuous: a Box of actions instead of four.
        longest: seconds of the longest step.
        broken_at: the step that raises.
    """

    def __init__(self, continuous: bool = False, longest: float = 0.002, broken_at: int = -1) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-2, 2, (1,), np.float32) if continuous else gym.spaces.Discrete(4)
        self.longest, self.broken_at, self.chance = longest, broken_at, random.Random()
        self.time, self.actions, self.spans = 0, [], []

    def _obs(self) -> np.ndarray:
        return np.array([self.time / 10, self.np_random.random()], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        began = time.monotonic()
        self.time += 1
        if self.time == self.broken_at:
            raise OverflowError("the environment broke")
        self.actions.append(np.copy(action))
        time.sleep(self.chance.random() * self.longest)
        self.spans.append((began, time.monotonic()))
        return self._obs(), float(np.sum(action)), self.time % 7 == 0, self.time % 11 == 0, {}


def small(algorithm: Any, env: Any, **options: Any) -> Any:
    options = {"learning_starts": 10, "batch_size": 8, "buffer_size": 300, "seed": 0, "overlap": True} | options
    options.setdefault("train_freq", 1)
    return algorithm("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, device="cpu", **options)


def vec(n_envs: int, continuous: bool, kind: Any = DummyVecEnv) -> Any:
    return kind([lambda: Sleepy(continuous)] * n_envs)


def subproc(env_fns: Any) -> SubprocVecEnv:
    return SubprocVecEnv(env_fns, start_method="fork")  # starts fastest


def weights(model: Any) -> torch.Tensor:
    return torch.cat([value.flatten().double() for value in model.learner.networks().values()])


def noise() -> OrnsteinUhlenbeckActionNoise:
    return OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))


CASES: dict[str, Any] = {
    "DQN": lambda: small(DQN, vec(2, False), train_freq=2, gradient_steps=3, exploration_fraction=0.9),
    "DQN by episodes": lambda: small(DQN, vec(1, False), train_freq=(1, "episode"), gradient_steps=-1),
    "DQN with priorities": lambda: small(DQN, vec(1, False), replay_buffer_class=PrioritizedReplayBuffer),
    "SAC": lambda: small(SAC, vec(2, True)),
    "SAC with gSDE": lambda: small(SAC, vec(2, True), use_sde=True, train_freq=3, sde_sample_freq=2),
    "SAC normalised": lambda: small(SAC, VecNormalize(vec(2, True)), gradient_steps=2),
    "SAC in processes": lambda: small(SAC, vec(2, True, subproc)),
    "TD3": lambda: small(TD3, vec(2, True), action_noise=noise(), train_freq=2, gradient_steps=-1, n_steps=3),
    "DDPG": lambda: small(DDPG, vec(1, True), action_noise=noise()),
    "DQN with hindsight": lambda: DQN(
        "MultiInputPolicy",
        BitFlippingEnv(n_bits=3, continuous=False),
        replay_buffer_class=HerReplayBuffer,
        learning_starts=20,
        train_freq=1,
        buffer_size=300,
        overlap=True,
        seed=0,
        device="cpu",
    ),
}


@pytest.mark.parametrize(
    "case", one_of_each(CASES, "DQN by episodes", "DQN with priorities", "SAC with gSDE", "SAC in processes", "TD3")
)
def test_equal_seeds_give_equal_results_whoever_is_faster(case: str) -> None:
    results, counts = [], []
    for _ in range(2):
        model = CASES[case]()
        model.learn(STEPS)
        results.append(weights(model))
        counts.append((model.num_timesteps, model._n_updates, model.replay_buffer.size() * model.n_envs))
        model.env.close()
    assert torch.equal(*results)
    assert counts[0] == counts[1]
    assert counts[0][0] == counts[0][2] >= STEPS
    assert counts[0][1] > 0


class Rules(DQN):
    """Update number k makes a network that prefers action ``k % 4``."""

    updates = 0

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        self.updates += 1
        with torch.no_grad():
            last = self.policy.q_net.q_net[-1]
            last.weight.zero_()
            last.bias.copy_(torch.eye(4)[self.updates % 4])


@pytest.mark.parametrize("frequency", [1, 3])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_policy_is_one_update_behind_for_one_step(frequency: int, overlap: bool) -> None:
    env = Sleepy()
    model = small(Rules, env, train_freq=frequency, learning_starts=0, overlap=overlap, **GREEDY)
    model.learn(30)
    # Update k follows step k * frequency; steps are numbered from 1 here.
    for step, action in enumerate(env.actions[1:], start=2):
        updates = (step - 1) // frequency
        behind = overlap and (step - 1) % frequency == 0
        if updates > behind:
            assert action == (updates - behind) % 4, step
    assert len(env.actions) == model.num_timesteps == 30
    assert model.updates == 30 // frequency


def test_without_learning_it_collects_what_it_collects_without_overlap() -> None:
    stored = []
    for overlap in (False, True):
        # a stream of its own for the sampler: acting draws from the global one at other times
        model = small(
            DQN, vec(2, False), learning_rate=0.0, overlap=overlap, replay_buffer_kwargs={"seed": 1}, gradient_steps=2,
            exploration_fraction=0.8,
        )  # fmt: skip
        model.learn(STEPS)
        stored.append(model.replay_buffer.state_dict())
    for key, value in stored[0].items():
        np.testing.assert_equal(stored[1][key], value)


@pytest.mark.parametrize("overlap", [False, True])
def test_steps_and_updates_happen_at_the_same_time(overlap: bool) -> None:
    env = Sleepy(longest=0.01)
    model = small(DQN, env, overlap=overlap, learning_starts=0)
    update, spans = model.learner.update, []

    def slow_update(batch: Any) -> Any:
        began = time.monotonic()
        time.sleep(0.01)
        metrics = update(batch)
        spans.append((began, time.monotonic()))
        return metrics

    model.learner.update = slow_update
    model.learn(STEPS)
    both = [(a, b) for a in env.spans for b in spans if max(a[0], b[0]) < min(a[1], b[1])]
    assert bool(both) == overlap
    assert model.time_split["update"] >= 0.01 * STEPS * 0.9


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("polyak-env_")]


def test_the_environments_error_is_the_callers() -> None:
    with pytest.raises(OverflowError, match="the environment broke"):
        small(DQN, Sleepy(broken_at=30)).learn(STEPS)
    assert threads() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, FloatingPointError])
def test_after_an_error_in_the_update_no_step_is_lost(error: Any) -> None:
    env = Sleepy()
    model = small(DQN, env, learning_starts=0)
    update = model.learner.update

    def stop(batch: Any) -> Any:
        if model.num_timesteps == 20:
            raise error
        return update(batch)

    model.learner.update = stop
    with pytest.raises(error):
        model.learn(STEPS)
    assert threads() == []
    assert (model.num_timesteps, len(env.actions)) == (20, 21)  # one more is in hand
    model.learner.update = update
    model.learn(10, reset_num_timesteps=False)
    assert model.num_timesteps == model.replay_buffer.size() == len(env.actions) == 30
    np.testing.assert_array_equal(model.replay_buffer.actions[:30].flatten(), np.array(env.actions))
    model.learn(5)  # and a new beginning forgets what was in hand
    assert model.num_timesteps == 5


def test_a_callback_that_stops_leaves_nothing_under_way() -> None:
    env = Sleepy()
    model = small(DQN, env, learning_starts=0).learn(STEPS, callback=lambda names, _: names["self"].num_timesteps < 25)
    assert len(env.actions) == model.num_timesteps == 25
    assert threads() == []


def test_callbacks_find_the_environments_at_rest() -> None:
    class Ask(BaseCallback):
        def _on_rollout_start(self) -> None:
            self.training_env.env_method("answer")

        def _on_step(self) -> bool:
            self.training_env.env_method("answer")
            return True

    class Asked(Sleepy):
        def answer(self) -> bool:
            return True

    model = small(SAC, subproc([lambda: Asked(True)] * 2))
    model.learn(STEPS, callback=Ask())  # SubprocVecEnv refuses while a step is under way
    model.env.close()


def test_batches_are_normalised_with_the_statistics_from_before() -> None:
    env = VecNormalize(vec(2, True))
    model = small(SAC, env, learning_starts=0)
    train, seen = model.train, []

    def watch(*args: Any, **kwargs: Any) -> None:
        before = model._vec_normalize_env.obs_rms.count
        train(*args, **kwargs)
        seen.append((before, model._vec_normalize_env.obs_rms.count, model.num_timesteps))

    model.train = watch
    model.learn(STEPS)
    for before, after, steps in seen:
        assert before == after == pytest.approx(steps + 2, abs=1e-3)  # and those of the reset
    assert model._vec_normalize_env is env


def test_a_copy_made_meanwhile_and_a_saved_model_work(tmp_path: Path) -> None:
    copies = []

    def keep(names: dict[str, Any], _: Any) -> bool:
        if names["self"].num_timesteps == 30:
            copies.append(copy.deepcopy(names["self"]))
        return True

    model = small(DQN, DummyVecEnv([Sleepy])).learn(STEPS, callback=ConvertCallback(keep))
    assert copies[0].learn(20).num_timesteps == 20
    model.save(tmp_path / "model", include=["replay_buffer"])
    env = copy.deepcopy(model.env)
    loaded = DQN.load(tmp_path / "model", env=env, resume=True, force_reset=False, device="cpu")
    assert loaded.overlap
    state = torch.get_rng_state(), np.random.get_state()
    loaded.learn(STEPS, reset_num_timesteps=False)
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    model.learn(STEPS, reset_num_timesteps=False)
    assert torch.equal(weights(model), weights(loaded))


def test_what_cannot_overlap_is_refused() -> None:
    with pytest.raises(ValueError, match="overlap='yes' cannot be used: it must be True or False"):
        small(DQN, Sleepy(), overlap="yes")
    goals = subproc([lambda: BitFlippingEnv(n_bits=2, continuous=False)])
    options = {"replay_buffer_class": HerReplayBuffer, "device": "cpu", "buffer_size": 100}
    with pytest.raises(ValueError, match=r"overlap=True cannot be used: hindsight.*SubprocVecEnv.*Use DummyVecEnv or"):
        DQN("MultiInputPolicy", goals, overlap=True, **options)
    goals.close()

    runner = small(DQN, Sleepy(), learning_starts=0).learn(STEPS).runner
    with runner.ahead():
        pass
    with pytest.raises(RuntimeError, match="must take every step from self.runner.step"), runner.ahead():
        pass
