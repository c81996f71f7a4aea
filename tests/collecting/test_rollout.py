"""True successors that no row of a rollout holds, and who evaluates a rollout when."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from polyak import A2C, PPO, PQN, RecurrentPPO
from polyak.callbacks.callback import BaseCallback
from polyak.envs import DummyVecEnv
from polyak.experience import RolloutBuffer
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from tests.tolerance import bound

ENDS = 3, 4
"""Steps after which the episodes of two environments are cut short."""
WIDTH = 8


class Cut(gym.Env):
    """Random observations, vectors or dicts of them.

    Args:
        length: of each episode, which a time limit ends.
        nested: whether observations are dicts.
    """

    def __init__(self, length: int, nested: bool = False) -> None:
        vector = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.observation_space = gym.spaces.Dict({"a": vector, "b": gym.spaces.Discrete(4)}) if nested else vector
        self.action_space, self.length, self.time = gym.spaces.Discrete(2), length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), float(self.time), False, self.time >= self.length, {}


class Masked(Cut):
    """One of two actions is forbidden in turn."""

    def action_masks(self) -> np.ndarray:
        return np.arange(2) != self.time % 3


def vec(nested: bool = False, kind: type[Cut] = Cut) -> DummyVecEnv:
    env = DummyVecEnv([lambda n=n: kind(n, nested) for n in ENDS])
    env.seed(0)
    return env


def forget_to_train(model: Any) -> Any:
    """The model without its updates: the values of its last rollout are those of its networks."""
    model.train = lambda: None
    return model


class Ends(BaseCallback):
    """Keeps the states in which episodes were cut short, by row and environment."""

    def _on_training_start(self) -> None:
        self.found: dict[tuple[int, int], dict[str, Any]] = {}

    def _on_step(self) -> bool:
        actor = self.model.runner.actor
        for n, info in enumerate(self.locals["infos"]):
            if info.get("TimeLimit.truncated"):
                memory = {name: state[n : n + 1].clone() for name, state in (actor.memory or {}).items()}
                observation = info["terminal_observation"]
                self.found[self.n_calls - 1, n] = {"observation": observation, "memory": memory}
        return True


def kept_values(model: Any, steps: int = 16) -> tuple[np.ndarray, dict[tuple[int, int], dict[str, Any]]]:
    """Values that a rollout has of cut states [steps, N], and these states."""
    ends = Ends()
    forget_to_train(model).learn(steps * len(ENDS), callback=ends)
    buffer = model.rollout_buffer
    assert {(int(t), int(n)) for t, n in np.argwhere(buffer.truncated)} == ends.found.keys()
    assert len(ends.found) == sum(steps // length for length in ENDS)
    return buffer.final_values, ends.found


SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "device": "cpu", "seed": 0}


@pytest.mark.parametrize(
    ("make", "nested"),
    [
        (lambda env: PPO("MlpPolicy", env, **SMALL), False),
        (lambda env: PPO("MultiInputPolicy", env, **SMALL), True),
        (lambda env: RecurrentPPO("MlpLstmPolicy", env, policy_kwargs={"memory_size": WIDTH}, **SMALL), False),
    ],
    ids=["vectors", "dicts", "recurrent"],
)
def test_values_of_successors_are_those_of_each_by_itself(make: Any, nested: bool) -> None:
    model = make(vec(nested))
    values, ends = kept_values(model)
    for (t, n), end in ends.items():
        tensors = model.policy.obs_to_tensor(end["observation"])[0]
        with torch.no_grad():
            alone = model.policy.predict_values(tensors, **end["memory"]).item()
        assert values[t, n] == pytest.approx(alone, abs=bound(3 + 2 * 64 + 2 * WIDTH, size=5))
    assert not values[~model.rollout_buffer.truncated].any()


def test_action_values_of_successors_keep_to_what_is_allowed_there() -> None:
    model = PQN("MlpPolicy", vec(kind=Masked), **SMALL)
    values, ends = kept_values(model)
    both = 0
    for (t, n), end in ends.items():
        with torch.no_grad():
            q = model.q_net(model.policy.obs_to_tensor(end["observation"])[0])[0].numpy()
        allowed = np.arange(2) != ENDS[n] % 3
        assert values[t, n] == pytest.approx(q[allowed].max(), abs=bound(3 + 2 * 64, size=5))
        both += q[allowed].max() < q.max()
    assert both, "somewhere the better action must be a forbidden one"


# -- who evaluates when ------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """Features with weights, which actor and critic share; counts the rows that it sees."""

    def __init__(self, space: gym.spaces.Space) -> None:
        super().__init__()
        self.features_dim, self.layer, self.seen = 4, nn.Linear(3, 4), []

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(obs))
        return self.layer(obs)


class Asks(BaseCallback):
    """Reads values, at chosen hooks."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at, self.values = at, []

    def _read(self, hook: str) -> None:
        if hook == self.at:
            self.values.append((self.locals["values"], self.locals["log_probs"], self.locals["obs_tensor"]))

    def _on_step(self) -> bool:
        self._read("step")
        return True

    def _on_rollout_end(self) -> None:
        self._read("rollout end")


@pytest.mark.parametrize(("at", "per_step"), [("nowhere", 1), ("rollout end", 1), ("step", 2)])
def test_a_step_is_evaluated_before_the_rollout_only_where_a_callback_reads_values(at: str, per_step: int) -> None:
    asks = Asks(at)
    model = PPO("MlpPolicy", vec(), policy_kwargs={"features_extractor_class": Encoder}, **SMALL)
    encoder = model.policy.features_extractor
    encoder.seen.clear()
    forget_to_train(model).learn(32, callback=asks)
    steps = [rows for rows in encoder.seen if rows == 2]
    whole = [rows for rows in encoder.seen if rows != 2]
    cut = sum(16 // length for length in ENDS)
    assert sorted(whole) == sorted([32, cut])
    assert len(steps) == 16 * per_step + 1  # the states after the last step
    if at == "rollout end":
        ((values, log_probs, obs),) = asks.values
        buffer = model.rollout_buffer
        assert torch.equal(log_probs, torch.from_numpy(buffer.log_probs[-1]))
        assert torch.equal(obs, torch.from_numpy(buffer.observations[-1]))
        assert values.shape == (2, 1)


def test_a_buffer_of_a_users_own_gets_values_with_each_step() -> None:
    seen: list[tuple[Any, ...]] = []

    class Own(RolloutBuffer):
        def add(self, *args: Any, **kwargs: Any) -> None:
            seen.append(args)
            super().add(*args, **kwargs)

    one, other = (
        forget_to_train(A2C("MlpPolicy", vec(), n_steps=16, rollout_buffer_class=kind, device="cpu", seed=0)).learn(32)
        for kind in (None, Own)
    )
    near = bound(3 + 2 * 64, size=5)
    values = np.stack([args[4] for args in seen])
    np.testing.assert_allclose(values, one.rollout_buffer.values, rtol=0, atol=near)
    folded = np.stack([args[2] for args in seen])
    mine = one.rollout_buffer
    np.testing.assert_allclose(folded, mine.rewards + mine.gamma * mine.final_values, rtol=0, atol=near)
    near = 16 * bound(3 + 2 * 64, size=5 * 16)
    np.testing.assert_allclose(other.rollout_buffer.advantages, mine.advantages, rtol=0, atol=near)


def test_a_forward_of_a_users_own_says_values() -> None:
    class Sure(ActorCriticPolicy):
        def forward(self, obs: Any, deterministic: bool = False) -> Any:
            actions, values, log_probs = super().forward(obs, deterministic)
            return actions, values + 100, log_probs

    model = forget_to_train(PPO(Sure, vec(), **SMALL)).learn(32)
    assert (model.rollout_buffer.values > 50).all()
