"""Actor-critics that bootstrap from a lagging copy: returns by their recursion, advantages, when the copy follows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import A2C, QAC, ActorCritic
from polyak.callbacks.callback import BaseCallback
from polyak.envs import make_vec_env
from polyak.envs.tensor import TensorCartPole
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.engine.program import Program
from polyak.nn import ActorCriticPolicy
from tests.algorithms.test_deep_sarsa import Restless
from tests.tolerance import bound, drift

GAMMA, STEPS = 0.9, 40


def make(cls: Any = A2C, env: Any = None, **options: Any) -> Any:
    options = {"policy_kwargs": {"net_arch": [8]}, "compile": False, "tau": 0.3, "n_steps": 5, **options}
    return cls("MlpPolicy", Restless() if env is None else env, device="cpu", seed=0, **options)


def apart(model: Any) -> Any:
    """The model, after its copy was given other weights."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.learner.critic_target.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


def weights(network: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(network.parameters()).detach().clone()


@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("cls", [A2C, ActorCritic])
def test_returns_are_of_rewards_and_of_the_copys_values(cls: Any, decay: float) -> None:
    """G = r + gamma ((1 - lambda) V'(s') + lambda G'), where G' follows in the rollout, else r + gamma V'(s')."""
    model = apart(make(cls, n_steps=STEPS, gamma=GAMMA, gae_lambda=decay))
    steps: list[Any] = []
    record = model.rollout_buffer.record
    model.rollout_buffer.record = lambda step, **more: (steps.append(step), record(step, **more))
    model.train = lambda: None
    model.learn(STEPS)
    assert any(step.truncated[0] for step in steps)
    assert any(step.terminated[0] for step in steps)

    @torch.no_grad()
    def value(obs: np.ndarray) -> float:
        return model.learner.critic_target.predict_values(torch.as_tensor(obs)).item()

    returns = np.zeros(STEPS)
    for t in reversed(range(STEPS)):
        step = steps[t]
        returns[t] = step.rewards[0]
        if not step.terminated[0]:
            after = value(step.next_observations)
            last = step.truncated[0] or t == STEPS - 1
            returns[t] += GAMMA * (after if last else (1 - decay) * after + decay * returns[t + 1])
    np.testing.assert_allclose(model.rollout_buffer.returns.reshape(-1), returns, rtol=0, atol=bound(STEPS * 80, 5))


@pytest.mark.parametrize("cls", [A2C, ActorCritic, QAC])
def test_advantages_are_counted_from_the_critic_that_learns(cls: Any) -> None:
    """The loss of the policy, and that of the critic, whose regression is on the same returns."""
    model = apart(make(cls, n_steps=STEPS))
    model.train = lambda: None
    model.learn(STEPS)
    batch = next(iter(model.rollout_buffer.get()))
    with torch.no_grad():
        values, log_prob, _ = model.policy.evaluate_actions(batch.observations, batch.actions)
    values = values.flatten()
    assert not torch.allclose(values, batch.old_values, atol=0.1)
    metrics = model.learner.gradient_step(batch).metrics
    followed = values if cls is QAC else batch.returns - values
    torch.testing.assert_close(metrics["policy_loss"], -(log_prob * followed).mean())
    torch.testing.assert_close(metrics["value_loss"], ((batch.returns - values) ** 2).mean())


def test_the_mean_of_actions_that_follow_is_the_copys_too() -> None:
    """Of QAC: where no action was taken after a step, its values and those of rows are the copy's."""
    model = apart(make(QAC, n_steps=1, gamma=GAMMA))
    model.train = lambda: None
    model.learn(1)
    while model.runner.episode_starts[0]:
        model.learn(1, reset_num_timesteps=False)
    with torch.no_grad():
        after = model.learner.critic_target.predict_values(torch.as_tensor(model.runner.obs)).item()
    reward = model.rollout_buffer.rewards.item()
    assert model.rollout_buffer.returns.item() == pytest.approx(reward + GAMMA * after)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("cls", [A2C, ActorCritic, QAC])
def test_the_copy_follows_the_critic_that_the_step_has_made(cls: Any, interval: int) -> None:
    model = make(cls, target_update_interval=interval)
    expected, frozen = weights(model.policy), weights(model.learner.critic_target)
    assert torch.equal(expected, frozen)
    for step in range(1, 7):
        model.learn(5)
        if step % interval == 0:
            expected = expected.lerp(weights(model.policy), 0.3)
        torch.testing.assert_close(weights(model.learner.critic_target), expected)
    assert not torch.equal(weights(model.policy), frozen)
    assert not model.learner.critic_target.training


@pytest.mark.parametrize(
    "options",
    [
        {"env": TensorCartPole(4)},
        {"policy_kwargs": {"net_arch": [8], "memory": "gru"}},
        pytest.param({}, marks=pytest.mark.slow),
    ],
)
def test_a_copy_that_is_always_equal_is_as_none(options: dict[str, Any]) -> None:
    """In numpy and in tensors, and of a recurrent policy, whose state goes to both."""
    plain, copied = (make(tau=tau, **options).learn(100) for tau in (None, 1.0))
    assert plain.learner.critic_target is None
    assert "critic_target" not in dict(plain.learner.named_modules())
    off = drift(plain._n_updates, 7e-4, 20 + 8 + 8)
    torch.testing.assert_close(weights(copied.policy), weights(plain.policy), rtol=0, atol=off)


def test_traced_it_equals_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    eager, traced = (apart(make(compile=choice)).learn(200) for choice in (False, True))
    assert traced.engine.status == "compiled"
    for part in ("policy", "critic_target"):
        ours, theirs = (weights(getattr(model.learner, part)) for model in (eager, traced))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=drift(40, 7e-4, 5 + 8 + 8))


def test_two_learners_learn_as_one_does() -> None:
    whole, shared = (make(n_steps=8, n_learners=n, transport="local").learn(160) for n in (1, 2))
    for part in ("policy", "critic_target"):
        ours, theirs = (weights(getattr(model.learner, part)) for model in (whole, shared))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=drift(20, 7e-4, 8 + 8 + 8))


@pytest.mark.parametrize("cls", [A2C, ActorCritic, QAC])
def test_resumed_in_the_middle_of_a_rollout_it_is_bit_equal(cls: Any, tmp_path: Path) -> None:
    class Saves(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 66:
                self.model.save(tmp_path / "half")
            return True

    env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    whole = make(cls, env, target_update_interval=2).learn(160, Saves())
    env = make_vec_env("CartPole-v1", n_envs=2, seed=77)
    resumed = cls.load(tmp_path / "half", env=env, resume=True, force_reset=False, device="cpu")
    resumed.learn(160 - 66, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps
    for part in ("policy", "critic_target"):
        assert torch.equal(weights(getattr(whole.learner, part)), weights(getattr(resumed.learner, part)))


class ByForward(ActorCriticPolicy):
    """Whose values are those of its own forward()."""

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        return super().forward(obs, deterministic)


@pytest.mark.parametrize("cls", [A2C, ActorCritic, QAC])
def test_what_cannot_be_is_refused(cls: Any) -> None:
    with pytest.raises(HyperparameterError, match="target_update_interval=4 cannot be used: without tau there is no"):
        make(cls, tau=None, target_update_interval=4)
    model = make(cls)
    with pytest.raises(HyperparameterError, match="tau=None cannot be set on a model that is built"):
        model.tau = None
    with pytest.raises(HyperparameterError, match=r"tau=1.5 cannot be used: it must be a number in \[0, 1\]"):
        make(cls, tau=1.5)


def test_a_policy_with_values_of_its_own_is_refused() -> None:
    with pytest.raises(HyperparameterError, match=r"tau=0.3 cannot be used: ByForward has a forward\(\) of its own"):
        A2C(ByForward, "CartPole-v1", tau=0.3, device="cpu")
    A2C(ByForward, "CartPole-v1", device="cpu")
