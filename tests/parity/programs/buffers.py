"""Buffers: arrays, dtypes, samples, advantages, relabelling."""

from typing import Any

import numpy as np
import torch
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.vec_env import DummyVecEnv

OBS = spaces.Box(-10.0, 10.0, (2,), np.float32)
ACT = spaces.Box(-1.0, 1.0, (3,), np.float32)


def _arrays(buffer: Any, names: str) -> dict[str, Any]:
    found = {}
    for name in names.split():
        value = getattr(buffer, name)
        if isinstance(value, dict):
            found[name] = {key: [list(item.shape), str(item.dtype)] for key, item in value.items()}
        else:
            found[name] = None if value is None else [list(value.shape), str(value.dtype)]
    return found


REPLAY = "observations next_observations actions rewards dones timeouts"
ROLLOUT = "observations actions rewards returns episode_starts values log_probs advantages"


def replay_arrays() -> Any:
    """Shapes and dtypes for kinds of spaces and numbers of environments."""
    return {
        "box": _arrays(ReplayBuffer(10, OBS, ACT, n_envs=2), REPLAY),
        "discrete": _arrays(ReplayBuffer(10, OBS, spaces.Discrete(3)), REPLAY),
        "several": _arrays(ReplayBuffer(10, spaces.Discrete(5), spaces.MultiDiscrete([2, 3])), REPLAY),
        "picture": _arrays(ReplayBuffer(10, spaces.Box(0, 255, (3, 8, 8), np.uint8), ACT), REPLAY),
        "double": _arrays(
            ReplayBuffer(10, spaces.Box(-1, 1, (2,), np.float64), spaces.Box(-1, 1, (1,), np.float64)), REPLAY
        ),
        "dict": _arrays(DictReplayBuffer(10, spaces.Dict({"a": OBS, "n": spaces.Discrete(4)}), ACT, n_envs=3), REPLAY),
        "small": ReplayBuffer(2, OBS, ACT, n_envs=4).buffer_size,
    }


def rollout_arrays() -> Any:
    """Shapes and dtypes of rollouts."""
    return {
        "box": _arrays(RolloutBuffer(5, OBS, ACT, n_envs=2), ROLLOUT),
        "discrete": _arrays(RolloutBuffer(5, OBS, spaces.Discrete(3), n_envs=2), ROLLOUT),
        "dict": _arrays(DictRolloutBuffer(5, spaces.Dict({"a": OBS, "n": spaces.Discrete(4)}), ACT), ROLLOUT),
    }


def _filled(buffer: Any, steps: int, n_envs: int = 1) -> Any:
    for step in range(steps):
        observation = np.full((n_envs, 2), step, np.float32) + np.arange(n_envs)[:, None]
        done = np.array([step % 3 == 2] * n_envs)
        infos = [{"TimeLimit.truncated": step % 6 == 5} for _ in range(n_envs)]
        action = np.full((n_envs, 3), step / 10, np.float32)
        buffer.add(observation, observation + 1, action, np.full(n_envs, 1.0 + step), done, infos)
    return buffer


def replay_contents() -> Any:
    """What is where after more steps than fit."""
    buffer = _filled(ReplayBuffer(10, OBS, ACT, n_envs=2, device="cpu"), 7, 2)
    return {
        "counters": [buffer.pos, buffer.full, buffer.size(), buffer.buffer_size],
        "rewards": buffer.rewards,
        "observations": buffer.observations[:, 0, 0],
        "next": buffer.next_observations[:, 1, 1],
        "dones": buffer.dones,
        "timeouts": buffer.timeouts,
    }


def replay_sample() -> Any:
    """Fields of a batch, and that a timeout is no end."""
    buffer = _filled(ReplayBuffer(12, OBS, ACT, device="cpu"), 6)
    batch = buffer.sample(200)
    fields = {
        name: [list(value.shape), str(value.dtype)] for name, value in batch._asdict().items() if value is not None
    }
    rewards, dones = batch.rewards.flatten(), batch.dones.flatten()
    ends = {int(reward): float(dones[rewards == reward][0]) for reward in rewards.unique()}
    bootstrapping = ReplayBuffer(12, OBS, ACT, device="cpu", handle_timeout_termination=False)
    kept = _filled(bootstrapping, 6).sample(100)
    return [fields, ends, float(kept.dones[kept.rewards == 6.0][0])]


def replay_indices() -> Any:
    """The batch of given indices."""
    buffer = _filled(ReplayBuffer(12, OBS, ACT, device="cpu"), 6)
    batch = buffer._get_samples(np.array([0, 2, 5]))
    return [batch.observations, batch.actions, batch.next_observations, batch.dones, batch.rewards]


def saved_memory() -> Any:
    """One array for observations and next observations."""
    buffer = ReplayBuffer(4, OBS, ACT, device="cpu", optimize_memory_usage=True, handle_timeout_termination=False)
    buffer = _filled(buffer, 6)
    batch = buffer._get_samples(np.array([0, 3]))
    return [buffer.pos, buffer.full, batch.observations, batch.next_observations, hasattr(buffer, "next_observations")]


def n_steps() -> Any:
    """Returns over several steps, cut at ends and at the newest transition."""
    buffer = _filled(NStepReplayBuffer(12, OBS, ACT, device="cpu", n_steps=3, gamma=0.5), 8)
    batch = buffer._get_samples(np.arange(8))
    return [batch.rewards, batch.dones, batch.next_observations, batch.discounts]


def advantages() -> Any:
    """GAE from fixed numbers, with the ends of episodes at different places."""
    found = {}
    for lambda_ in (1.0, 0.9, 0.0):
        buffer = RolloutBuffer(6, OBS, spaces.Discrete(2), device="cpu", gae_lambda=lambda_, gamma=0.95, n_envs=2)
        for step in range(6):
            starts = np.array([step in (0, 3), step in (0, 5)], np.float32)
            values = torch.tensor([0.1 * step, 1.0 - 0.2 * step])
            observation = np.full((2, 2), step, np.float32)
            buffer.add(observation, np.zeros((2, 1)), np.array([1.0, step]), starts, values, torch.zeros(2))
        buffer.compute_returns_and_advantage(torch.tensor([[0.5], [0.7]]), np.array([False, True]))
        found[str(lambda_)] = [buffer.advantages, buffer.returns]
    return found


def rollout_batches() -> Any:
    """Fields of batches, their number, and how steps and environments are flattened."""
    buffer = RolloutBuffer(4, OBS, spaces.Discrete(2), device="cpu", n_envs=2)
    for step in range(4):
        observation = np.array([[step, 0], [step, 1]], np.float32)
        buffer.add(observation, np.full((2, 1), step % 2), np.ones(2), np.zeros(2), torch.zeros(2), torch.zeros(2))
    buffer.compute_returns_and_advantage(torch.zeros(2), np.zeros(2))
    batches = list(buffer.get(3))
    whole = next(iter(buffer.get()))
    fields = {name: [list(value.shape), str(value.dtype)] for name, value in whole._asdict().items()}
    return [fields, [len(batch.actions) for batch in batches], buffer.observations, buffer.full, buffer.generator_ready]


def rollout_too_early() -> Any:
    """Batches of an unfinished rollout are a mistake."""
    return next(iter(RolloutBuffer(4, OBS, spaces.Discrete(2), device="cpu").get(2)))


def scaled_actions() -> Any:
    """What is stored of actions: in [-1, 1] for SAC, TD3 and DDPG; as sampled, not clipped, for PPO and A2C."""
    found = {}
    for cls in (SAC, TD3, DDPG):
        env = worlds.Target(-3.0, 9.0)
        model = cls("MlpPolicy", env, learning_starts=10, buffer_size=100, batch_size=4, device="cpu", seed=0).learn(30)
        stored = model.replay_buffer.actions[:30, 0]
        found[cls.__name__] = [bool(np.abs(stored).max() <= 1.0), str(stored.dtype)]
    narrow = worlds.Counting(action_space=spaces.Box(-0.5, 4.5, (1,), np.float32))
    model = SAC("MlpPolicy", narrow, learning_starts=8, buffer_size=100, batch_size=4, device="cpu", seed=0).learn(12)
    stored = model.replay_buffer.actions[:12, 0, 0]
    found["round trip"] = bool(np.allclose((stored + 1) / 2 * 5 - 0.5, np.ravel(narrow.seen_actions), atol=1e-5))
    small = worlds.Counting(action_space=spaces.Box(-0.01, 0.01, (1,), np.float32))
    model = PPO("MlpPolicy", small, n_steps=8, batch_size=8, device="cpu", seed=0).learn(8)
    found["PPO"] = [
        bool(np.abs(model.rollout_buffer.actions).max() > 0.01),
        bool(np.abs(small.seen_actions).max() <= 0.0100001),
    ]
    return found


def stored_by_learning() -> Any:
    """The arrays of a model after some steps: last observations of episodes, ends and timeouts."""
    model = DQN("MlpPolicy", worlds.Counting(3, "truncated"), learning_starts=100, buffer_size=20, device="cpu", seed=0)
    model.learn(7)
    buffer = model.replay_buffer
    rollout = A2C("MlpPolicy", worlds.Counting(3), n_steps=5, device="cpu", seed=0).learn(5).rollout_buffer
    return {
        "next": buffer.next_observations[:7, 0, 0],
        "observations": buffer.observations[:7, 0],
        "dones": buffer.dones[:7, 0],
        "timeouts": buffer.timeouts[:7, 0],
        "sizes": [buffer.size(), buffer.pos, buffer.full],
        "starts": rollout.episode_starts[:, 0],
        "rewards": rollout.rewards[:, 0],
        "shapes": _arrays(rollout, ROLLOUT),
    }


def truncated_rewards() -> Any:
    """PPO and A2C add the value of the last observation to the reward where an episode was cut off."""
    model = A2C("MlpPolicy", worlds.Counting(3, "truncated"), n_steps=5, gamma=0.9, device="cpu", seed=0)
    last = torch.tensor([[3.0, 1.0]])
    value = float(model.policy.predict_values(last))
    model.learn(5)
    rewards = model.rollout_buffer.rewards[:, 0]
    return [rewards[:2], abs(float(rewards[2]) - (3.0 + 0.9 * value)) < 1e-4]


def sizes() -> Any:
    """``buffer_size`` is shared by the environments."""
    env = DummyVecEnv([worlds.Target] * 4)
    model = SAC("MlpPolicy", env, buffer_size=103, device="cpu")
    return [model.replay_buffer.buffer_size, list(model.replay_buffer.observations.shape), model.replay_buffer.n_envs]


def classes() -> Any:
    """Which buffer an algorithm makes."""
    several = worlds.Several()
    return [
        type(DQN("MlpPolicy", worlds.Counting(), buffer_size=10, device="cpu").replay_buffer).__name__,
        type(DQN("MultiInputPolicy", several, buffer_size=10, device="cpu").replay_buffer).__name__,
        type(DQN("MlpPolicy", worlds.Counting(), n_steps=3, buffer_size=10, device="cpu").replay_buffer).__name__,
        type(PPO("MlpPolicy", worlds.Counting(), device="cpu").rollout_buffer).__name__,
        type(PPO("MultiInputPolicy", several, device="cpu").rollout_buffer).__name__,
    ]


def hindsight() -> Any:
    """Fields, share of relabelled transitions and rewards that fit the goals."""
    model = SAC(
        "MultiInputPolicy",
        worlds.Goals(),
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        learning_starts=100,
        buffer_size=200,
        device="cpu",
        seed=0,
    ).learn(40)
    buffer = model.replay_buffer
    batch = buffer.sample(400)
    goals, reached = batch.observations["desired_goal"], batch.next_observations["achieved_goal"]
    right = torch.allclose(batch.rewards, -(reached - goals).abs().sum(1, keepdim=True))
    share = float((goals != 9.0).float().mean())
    return {
        "fields": {key: list(value.shape) for key, value in batch.observations.items()},
        "rewards fit": bool(right),
        "later goals": bool((goals[goals != 9.0] > 0).all()),
        "same goals": bool((goals == batch.next_observations["desired_goal"]).all()),
        "share": 0.7 < share < 0.9,
        "ratio": buffer.her_ratio,
        "timeouts": float(batch.dones.max()),
        "strategy": str(buffer.goal_selection_strategy).split(".")[-1].split(":")[0],
        "sizes": [buffer.size(), buffer.pos],
        "episodes": [buffer.ep_start[:9, 0], buffer.ep_length[:9, 0]],
    }


def hindsight_strategies() -> Any:
    """Goals of each strategy."""
    found = {}
    for strategy in ("final", "episode", "future"):
        model = SAC(
            "MultiInputPolicy",
            worlds.Goals(),
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs={"goal_selection_strategy": strategy},
            learning_starts=100,
            buffer_size=200,
            device="cpu",
            seed=0,
        ).learn(20)
        batch = model.replay_buffer.sample(300)
        goals = batch.observations["desired_goal"]
        found[strategy] = sorted({float(goal) for goal in goals.flatten() if goal != 9.0})
    return found
