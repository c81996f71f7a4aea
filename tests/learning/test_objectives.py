"""Algorithms that are others plus a term: they extend an objective and copy no gradient step."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from polyak import DQN, PPO, SAC, TD3
from polyak.algorithms.dqn import DQNLearner
from polyak.algorithms.ppo import PPOLearner
from polyak.algorithms.sac import SACLearner
from polyak.algorithms.td3 import TD3Learner
from polyak.experience import Transition
from polyak.learning.learner import Objective

pytestmark = pytest.mark.usefixtures("interpreted")


class Conservative(SACLearner):
    """Conservative Q-learning (arXiv:2006.04779): low values for actions that are not in the batch."""

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        actions = 2 * torch.rand_like(batch.actions) - 1
        elsewhere = torch.stack([self.policy.critic.q_values(batch.observations, actions), q])
        gap = (elsewhere.logsumexp(0) - q).mean(1).sum()
        return super().critic_objective(batch, q, target).plus(5.0 * gap, conservative_gap=gap.detach())


class Cloning(TD3Learner):
    """TD3+BC (arXiv:2106.06860): close to the actions of the batch, with values of a scale of their own."""

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        scaled = 2.5 * q / q.abs().mean().detach()
        distance = F.mse_loss(actions, batch.actions)
        return super().actor_objective(batch, actions, scaled).plus(distance, distance=distance.detach())


class Double(DQNLearner):
    """Double Q-learning (arXiv:1509.06461), with large values discouraged."""

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        best = self.policy.q_net(batch.next_observations).argmax(1, keepdim=True)
        q = self.policy.q_net_target(batch.next_observations).gather(1, best).squeeze(1)
        return batch.rewards + batch.discounts * q

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        size = q.square().mean()
        return super().objective(batch, q, target).plus(0.1 * size, size=size.detach())


class Cautious(PPOLearner):
    """With a term of the log-probabilities that the gradient step has computed."""

    def objective(self, batch: Any, values: Tensor, log_prob: Tensor, entropy: Tensor | None) -> Objective:
        distance = (log_prob - batch.old_log_prob).square().mean()
        return super().objective(batch, values, log_prob, entropy).plus(distance, distance=distance.detach())


def model(algorithm: Any, learner: Any, **options: Any) -> Any:
    """An algorithm with another learner."""

    class Extended(algorithm):
        learner_class = learner

    if algorithm is PPO:
        settings: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "n_epochs": 2}
    else:
        settings = {"learning_starts": 16, "batch_size": 16, "buffer_size": 100}
    env = "Pendulum-v1" if algorithm in (SAC, TD3) else "CartPole-v1"
    kwargs = {"net_arch": [8]}
    return Extended("MlpPolicy", env, device="cpu", seed=0, policy_kwargs=kwargs, **settings, **options)


def slowly(cases: list[Any]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


CASES = [(SAC, Conservative), (TD3, Cloning), (DQN, Double), (PPO, Cautious)]


@pytest.mark.parametrize(("algorithm", "learner"), [*slowly(CASES[:3]), CASES[3]])
def test_a_term_more_is_learned_and_logged_line_by_line_and_as_a_program(algorithm: Any, learner: Any) -> None:
    plain, traced = (model(algorithm, learner, compile=compile).learn(48) for compile in (False, True))
    (parent,) = learner.__bases__
    without = model(algorithm, parent, compile=False).learn(48)
    assert traced.engine.status == "compiled"
    assert any(traced.engine.programs.values())
    ours, theirs, others = (each.learner.networks() for each in (plain, traced, without))
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=0, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}")
    assert any(not torch.allclose(ours[name], others[name], rtol=0, atol=2e-5) for name in ours)
    (term,) = {"conservative_gap", "distance", "size"} & {
        key.removeprefix("train/") for key in plain.logger.name_to_value
    }
    assert float(plain.logger.name_to_value[f"train/{term}"]) > 0


@pytest.mark.parametrize(("algorithm", "learner"), CASES[:3])
def test_it_makes_no_forward_pass_that_its_parent_makes_too(algorithm: Any, learner: Any) -> None:
    (parent,) = learner.__bases__
    calls = []
    for cls in (parent, learner):
        made = model(algorithm, cls, compile=False).learn(20)
        network = made.q_net if algorithm is DQN else made.actor
        count: list[int] = []
        network.register_forward_hook(lambda *_, count=count: count.append(1))
        batch = next(iter(made.replay_buffer.transitions(16, 0.99, None, 1)))[0]
        made.learner.steps = 1
        made.learner.update(batch)
        calls.append(len(count))
    assert calls[1] == calls[0] + (algorithm is DQN)  # which asks it for the best of the next actions


def test_an_objective_with_a_term_more_keeps_the_rest() -> None:
    errors = torch.ones(3)
    objective = Objective(torch.tensor(1.0), {"a": torch.tensor(0.0)}, errors).plus(torch.tensor(2.0), b=torch.ones(()))
    assert float(objective.loss) == 3.0
    assert list(objective.metrics) == ["a", "b"]
    assert objective.td_error is errors
