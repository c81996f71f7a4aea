"""Replay in tensors with every option: it trains, and a saved training goes on as if it had not been interrupted."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import DQN, SAC
from polyak.arrays import mapped
from polyak.envs.protocol import First
from polyak.envs.tensor import TensorCartPole, TensorEnv, TensorPendulum
from polyak.experience import Dataset, HerReplayBuffer, ReplayBuffer, collect
from tests.pairs import one_of_each

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16]}, "seed": 0, "device": "cpu", "compile": False}
REPLAYS = {**SMALL, "learning_starts": 32, "batch_size": 16, "buffer_size": 400}
BITS = spaces.Box(0, 1, (3,), np.float32)


class Flipping(TensorEnv):
    """Flips one of three bits in each step; the goal is to have certain ones."""

    observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), BITS))
    action_space = spaces.Discrete(3)
    max_episode_steps = 5

    def begin(self, n: int) -> Tensor:
        return torch.randint(2, (n, 6), generator=self.random, device=self.device).float()

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        bits = (state[:, :3] - torch.nn.functional.one_hot(actions, 3)).abs()
        rewards = self.compute_reward(bits, state[:, 3:], [])
        return torch.cat([bits, state[:, 3:]], 1), rewards, rewards == 0

    def observe(self, state: Tensor) -> Any:
        return {"observation": state[:, :3], "achieved_goal": state[:, :3], "desired_goal": state[:, 3:]}

    def compute_reward(self, achieved: Tensor, desired: Tensor, infos: Any) -> Tensor:
        return (achieved == desired).all(-1).float() - 1


class Forbidding(TensorCartPole):
    """Pushing to the left is forbidden where the cart is on the left."""

    masked = True

    def allowed(self) -> Tensor:
        return torch.stack([self.state[:, 0] > 0, torch.ones(self.num_envs, dtype=torch.bool)], 1)

    def reset(self) -> First:
        return super().reset()._replace(masks=self.allowed())

    def step(self, actions: Tensor) -> Any:
        return super().step(actions)._replace(masks=self.allowed())


HER = {"replay_buffer_class": HerReplayBuffer}
CASES: dict[str, tuple[Any, type[TensorEnv], dict[str, Any]]] = {
    "priorities": (DQN, TensorCartPole, {"prioritized": True, "n_steps": 3}),
    "masks": (DQN, Forbidding, {"n_steps": 2, "optimize_memory_usage": True}),
    "drawn-steps": (SAC, TensorPendulum, {"n_steps": (1, 4)}),
    "goals": (DQN, Flipping, {"replay_buffer_kwargs": {"seed": 3, "sampler": "rank_based"}}),
    "hindsight": (DQN, Flipping, HER),
    "hindsight-priorities-once": (
        DQN,
        Flipping,
        {**HER, "prioritized": True, "n_steps": 2, "optimize_memory_usage": True},
    ),
    "memory": (DQN, TensorCartPole, {"policy_kwargs": {**SMALL["policy_kwargs"], "memory": "lstm", "memory_size": 8}}),
    "dataset": (SAC, TensorPendulum, {"dataset_share": 0.5}),
    "shards": (DQN, TensorCartPole, {"n_replay_shards": 2, "transport": "local", "prioritized": True}),
}


@pytest.fixture(scope="module")
def recorded() -> Dataset:
    return collect("Pendulum-v1", None, 100, seed=3)


def made(name: str, recorded: Dataset, path: Any = None) -> Any:
    kind, env, options = CASES[name]
    if path is not None:
        model = kind.load(path, env=env(4, seed=8), resume=True, device="cpu")
    else:
        policy = "MultiInputPolicy" if env is Flipping else "MlpPolicy"
        model = kind(policy, env(4), **{**REPLAYS, **options})
    if name == "dataset":
        model.set_dataset(recorded)
    return model


@pytest.mark.parametrize(
    "name", one_of_each(CASES, "masks", "hindsight-priorities-once", "memory", "dataset", "shards")
)
def test_training_is_saved_and_goes_on(name: str, recorded: Dataset, tmp_path: Any) -> None:
    def save(published: dict[str, Any], _: Any) -> bool:  # within episodes, when the ring has begun again
        if (model := published["self"]).num_timesteps == 460:
            model.save(tmp_path / "model", include=["replay_buffer"])
        return True

    whole = made(name, recorded)
    whole.learn(520, callback=save)
    assert whole.in_tensors
    assert whole._n_updates > 20
    if name != "shards":
        assert isinstance(whole.replay_buffer, ReplayBuffer)
        assert isinstance(whole.replay_buffer.rewards, Tensor)
    np.random.seed(9)
    torch.manual_seed(9)
    again = made(name, recorded, tmp_path / "model")
    again.learn(60, reset_num_timesteps=False)
    for key, tensor in whole.learner.networks().items():
        assert torch.equal(tensor, again.learner.networks()[key]), key


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
@pytest.mark.parametrize("once", [False, True])
def test_files_of_earlier_versions_are_read(sampler: str, once: bool) -> None:
    """These had terminated and truncated apart, and with observations once one row fewer."""
    space, steps = spaces.Discrete(9), 10

    def buffer() -> ReplayBuffer:
        return ReplayBuffer(
            2 * steps, space, space, "cpu", 2, once, sampler=sampler, n_steps=2, seed=0, in_tensors=True
        )

    ours, random = buffer(), np.random.default_rng(0)
    for _ in range(23):
        now, then, action, ends = random.integers(9, size=(4, 2))
        limits = [{"TimeLimit.truncated": bool(end == 8)} for end in ends]
        ours.add(*map(torch.from_numpy, (now, then, action, random.normal(size=2), ends > 6)), limits)
    before = 3 + steps - once
    rows = mapped(lambda part: part[once:], ours.contents())
    dones, timeouts = rows.pop("dones"), rows.pop("timeouts")
    state = {name: rows[name][..., 0] for name in ("observations", "next_observations")}  # numbers, not vectors
    state |= {name: rows[name] for name in ("actions", "rewards")}
    state |= {"terminated": dones & ~timeouts, "truncated": timeouts, "buffer_size": steps, "n_envs": 2}
    state |= {f"sampler/{name}": value for name, value in ours.sampler.state_dict().items()}
    theirs = buffer()
    theirs.load_state_dict({**state, "written": 23})
    assert theirs.size() == before - 3
    found = theirs.contents()
    for name, column in ours.contents().items():
        assert np.array_equal(column[once:], found[name]), name
    if not once:  # every row is in its old slot
        assert torch.equal(next(ours.transitions(32, 0.9))[0].rewards, next(theirs.transitions(32, 0.9))[0].rewards)
    with pytest.raises(ValueError, match="buffer_size=10, this one 5"):
        ReplayBuffer(10, space, space, "cpu", 2, in_tensors=True).load_state_dict({**state, "written": 23})


def test_what_contradicts_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match=r"leave out storage_device='disk'"):
        ReplayBuffer(10, BITS, spaces.Discrete(3), "cpu", in_tensors=True, storage_device="disk")

    class Own(ReplayBuffer):
        pass

    for options, why in (
        ({"replay_buffer_class": Own}, "replay_buffer_class=Own is one of your own"),
        ({"replay_buffer_kwargs": {"storage_device": "disk"}}, "storage_device"),
    ):
        model = DQN("MlpPolicy", TensorCartPole(2), **{**REPLAYS, **options})
        assert not model.in_tensors
        assert why in model._why_numpy()
    with pytest.raises(ValueError, match="has no compute_reward"):
        TensorCartPole.observation_space, kept = Flipping.observation_space, TensorCartPole.observation_space
        try:
            DQN("MultiInputPolicy", TensorCartPole(2), **{**REPLAYS, **HER})
        finally:
            TensorCartPole.observation_space = kept
