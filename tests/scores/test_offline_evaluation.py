"""Fitted Q Evaluation ranks the checkpoints of a training as playing does, from recorded episodes alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from polyak import SAC
from polyak.callbacks.callback import BaseCallback
from polyak.evaluation.in_environments import evaluate
from polyak.experience import collect
from polyak.zoo.ranking import rank_checkpoints

pytestmark = pytest.mark.learn

CHECKPOINTS = (250, 1000, 1750, 2500, 5000)


class Keep(BaseCallback):
    """Copies of the policy at some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.policies: dict[int, object] = {}

    def _on_step(self) -> bool:
        if self.num_timesteps in CHECKPOINTS:
            self.policies[self.num_timesteps] = copy.deepcopy(self.model.policy)
        return True


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fqe_ranks_checkpoints_of_a_training(seed: int) -> None:
    keep = Keep()
    small = {"policy_kwargs": {"net_arch": [64, 64]}, "learning_rate": 1e-3}
    SAC("MlpPolicy", "Pendulum-v1", seed=seed, device="cpu", learning_starts=200, **small).learn(
        CHECKPOINTS[-1], callback=keep
    )
    policies = {str(step): policy for step, policy in keep.policies.items()}
    parts = [collect("Pendulum-v1", policy, 2000, seed=seed + i) for i, policy in enumerate(policies.values())]
    data = parts[0] + parts[1] + parts[2] + parts[3] + parts[4]
    truth = {
        name: evaluate(policy, "Pendulum-v1", 30, seed=1000 + seed).mean  # type: ignore[arg-type]
        for name, policy in policies.items()
    }
    fqe = {**small, "deterministic": True, "reward_scaling": (0.1, 0.0), "device": "cpu"}
    ranking = rank_checkpoints(policies, data, "fqe", gamma=0.97, n_updates=3000, fqe=fqe, seed=seed)
    correlation = ranking.correlation(truth)
    print(f"\nseed {seed}, true returns { ({name: round(float(x)) for name, x in truth.items()}) }\n{ranking}")
    print(f"rank correlation {correlation:.2f}")
    assert np.ptp(list(truth.values())) > 500, "the checkpoints hardly differ"
    assert correlation >= 0.8
