"""A small learner, what users do to it between two gradient steps, which its programs must notice, and a comparison."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from polyak import SAC
from tests.tolerance import drift


def sac(env: Any = "Pendulum-v1", **options: Any) -> SAC:
    options = {"policy_kwargs": {"net_arch": [8, 8]}, "learning_starts": 20, "batch_size": 16} | options
    return SAC("MlpPolicy", env, buffer_size=200, device="cpu", seed=0, **options)


def weights(model: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.learner.state_dict().items()}


def near(model: Any, rate: float = 3e-4, rows: int = 16) -> float:
    """How far other calls of the same updates may leave the parameters."""
    widths = sum(p.shape[1:].numel() for p in model.learner.parameters() if p.dim() > 1)
    return drift(model.learner.steps, rate, rows + widths)


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float = 0.0) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor, theirs[name], rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


def replaced_network(model: SAC) -> None:
    model.policy.critic.qf0 = copy.deepcopy(model.policy.critic.qf1)
    model.learner.optimizers["critic"] = torch.optim.Adam(model.policy.critic.parameters(), lr=3e-4)


def loaded_optimizer(model: SAC) -> None:
    state = copy.deepcopy(model.actor.optimizer.state_dict())
    for each in state["state"].values():
        each["exp_avg"] += 1
    model.learner.load_optimizer("actor", state)


def other_activation(model: SAC) -> None:
    model.policy.actor.latent_pi[1] = nn.Tanh()


def other_option(model: SAC) -> None:
    model.learner.target_entropy = -7.0


def a_hook(model: SAC) -> None:
    model.policy.actor.mu.register_forward_hook(lambda module, inputs, output: output + 0.5)
