"""DeepSARSA's returns against brute force on what happened in a rollout."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import DeepSARSA
from polyak.algorithms import deep_sarsa
from tests.tolerance import bound

GAMMA, STEPS = 0.9, 40


class Restless(gym.Env[np.ndarray, Any]):
    """Random observations and rewards; episodes end, by termination or truncation, after some steps."""

    observation_space, action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._observation(), {}

    def _observation(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        end = self.np_random.integers(0, 8)
        return self._observation(), float(self.np_random.normal()), bool(end == 0), bool(end == 1), {}


def test_expected_value_is_that_of_the_epsilon_greedy_policy() -> None:
    q = torch.tensor([[1.0, 4.0, -2.0]])
    probabilities = torch.tensor([0.1, 0.8, 0.1])
    torch.testing.assert_close(deep_sarsa.expected_value(q, 0.3)[0], (q[0] * probabilities).sum())


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
def test_returns_by_their_recursion(expected: bool, decay: float) -> None:
    """G_t = r + gamma (V(s') + decay (G_(t+1) - Q(s', a'))), with Q(s', a') for V(s') in plain SARSA."""
    model = DeepSARSA(
        "MlpPolicy",
        Restless(),
        n_steps=STEPS,
        gamma=GAMMA,
        gae_lambda=decay,
        expected=expected,
        exploration_initial_eps=0.4,
        exploration_final_eps=0.4,
        device="cpu",
        seed=0,
    )
    seen: dict[str, Any] = {}
    model.train = lambda: None
    record = type(model.rollout_buffer).record

    def spy(buffer: Any, step: Any, **more: Any) -> None:
        seen.setdefault("steps", []).append(step)
        record(buffer, step, **more)

    model.rollout_buffer.record = spy.__get__(model.rollout_buffer)
    model.learn(STEPS)
    steps, buffer = seen["steps"], model.rollout_buffer
    assert any(step.truncated[0] for step in steps)
    assert any(step.terminated[0] for step in steps)

    def q(obs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model.q_net(torch.as_tensor(obs)).numpy()[0].astype(np.float64)

    def v(obs: np.ndarray) -> float:
        return 0.6 * q(obs).max() + 0.4 * q(obs).mean()

    returns = np.zeros(STEPS)
    for t in reversed(range(STEPS)):
        step = steps[t]
        target = step.rewards[0]
        if not step.terminated[0]:
            if step.truncated[0] or t == STEPS - 1:
                target += GAMMA * v(step.next_observations)
            else:
                then = q(step.next_observations)[steps[t + 1].actions[0]]
                base = v(step.next_observations) if expected else then
                target += GAMMA * (base + decay * (returns[t + 1] - then))
        returns[t] = target
    np.testing.assert_allclose(buffer.returns.reshape(-1), returns, rtol=0, atol=bound(STEPS * 80, 5))
