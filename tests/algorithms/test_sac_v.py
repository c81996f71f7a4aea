"""SACV: its losses against their gradients in the paper, entropies by quadrature, the values of a fixed policy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak import SACV
from polyak.algorithms import sac_v
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from tests.tolerance import sampling
from tests.worlds import World

PARTS = ("actor", "critic", "value", "value_target")


def model(env: Any = "Pendulum-v1", **options: Any) -> Any:
    small = {"policy_kwargs": {"net_arch": [8]}, "buffer_size": 200, "batch_size": 16, "learning_starts": 20}
    return SACV("MlpPolicy", env, device="cpu", seed=0, compile=False, **{**small, **options})


def some_batch(rows: int = 16, dtype: torch.dtype = torch.float32) -> Transition:
    generator = torch.Generator().manual_seed(1)
    return Transition(
        observations=torch.randn(rows, 3, generator=generator, dtype=dtype),
        actions=torch.rand(rows, 1, generator=generator, dtype=dtype) * 2 - 1,
        rewards=torch.randn(rows, generator=generator, dtype=dtype),
        next_observations=torch.randn(rows, 3, generator=generator, dtype=dtype),
        discounts=torch.full((rows,), 0.9, dtype=dtype),
        weights=torch.rand(rows, generator=generator, dtype=dtype),
    )


def in_doubles(**options: Any) -> Any:
    """A learner in float64, whose lagging copy of V has other weights than V."""
    learner = model(**options).learner.double()
    for part in ("actor", "critic", "value", "value_target"):
        getattr(learner.policy, part)._preprocess = lambda obs: obs  # which would make float32 of them
    generator = torch.Generator().manual_seed(2)
    for parameter in learner.policy.value_target.parameters():
        parameter.normal_(generator=generator)
    return learner


def vectors(ours: Any) -> dict[str, Tensor]:
    return {
        name: nn.utils.parameters_to_vector(getattr(ours.policy, name).parameters()).detach().clone() for name in PARTS
    }


# -- losses and their gradients ----------------------------------------------------------------------------------------


def test_value_loss_by_hand() -> None:
    values, target, weights = torch.tensor([1.0, -2.0]), torch.tensor([3.0, -1.0]), torch.tensor([1.0, 0.5])
    assert sac_v.value_loss(values, target, weights).item() == (4.0 + 0.5) / 4


def captured(learner: Any) -> dict[str, list[Tensor]]:
    """Gradients that each optimizer of the learner is given from now on; nothing moves."""
    found: dict[str, list[Tensor]] = {}

    def minimise(name: str, loss: Tensor, *_: Any) -> None:
        own = [p for group in learner.optimizers[name].param_groups for p in group["params"]]
        found[name] = list(torch.autograd.grad(loss, own))

    learner.minimise = minimise
    return found


def row_by_row(network: nn.Module, outputs: Tensor, errors: Tensor) -> list[Tensor]:
    """Means over rows of (gradient of the output) times (a number)."""
    total = [torch.zeros_like(p) for p in network.parameters()]
    for output, error in zip(outputs, errors, strict=True):
        gradients = torch.autograd.grad(output, list(network.parameters()), retain_graph=True)
        total = [t + error * g / len(outputs) for t, g in zip(total, gradients, strict=True)]
    return total


def test_gradients_of_values_and_critics_are_equations_6_and_9() -> None:
    learner, batch = in_doubles(ent_coef=0.3), some_batch(dtype=torch.float64)
    policy, found = learner.policy, captured(learner)
    torch.manual_seed(5)
    learner.gradient_step(batch, False)
    torch.manual_seed(5)
    with torch.no_grad():
        actions, log_prob = policy.actor.action_log_prob(batch.observations)
        smaller = torch.minimum(*policy.critic.q_values(batch.observations, actions))
    values = policy.value(batch.observations)
    errors = batch.weights * (values.detach() - smaller + 0.3 * log_prob)
    torch.testing.assert_close(found["value"], row_by_row(policy.value, values, errors))
    expected = []
    for k, network in enumerate(policy.critic.q_networks):
        q = policy.critic.q_values(batch.observations, batch.actions)[k]
        after = policy.value_target(batch.next_observations)
        errors = batch.weights * (q.detach() - batch.rewards - 0.9 * after)
        expected += row_by_row(network, q, errors)
    torch.testing.assert_close(found["critic"], expected)


def test_the_gradient_of_the_actor_is_that_of_finite_differences() -> None:
    """Of E[alpha log pi(f(eps; s) | s) - Q(s, f(eps; s))], eq. 12, at fixed eps."""
    learner, batch = in_doubles(ent_coef=0.3), some_batch(dtype=torch.float64)
    policy, found = learner.policy, captured(learner)
    torch.manual_seed(5)
    learner.gradient_step(batch, False)

    def loss() -> float:
        torch.manual_seed(5)
        actions, log_prob = policy.actor.action_log_prob(batch.observations)
        smaller = torch.minimum(*policy.critic.q_values(batch.observations, actions))
        return (0.3 * log_prob - smaller).mean().item()

    for parameter, gradient in zip(policy.actor.parameters(), found["actor"], strict=True):
        index = tuple(np.unravel_index(gradient.abs().argmax().item(), gradient.shape))
        with torch.no_grad():
            before = parameter[index].clone()
            parameter[index] = before + 1e-6
            above = loss()
            parameter[index] = before - 1e-6
            below = loss()
            parameter[index] = before
        assert gradient[index].item() == pytest.approx((above - below) / 2e-6, abs=1e-8, rel=1e-6)


def entropy_of_tanh(mean: float, std: float) -> float:
    """Of tanh(x), x normal: -E[log p(x) - log(1 - tanh(x)^2)] on a grid of x."""
    x = np.linspace(mean - 12 * std, mean + 12 * std, 200_001)
    p = np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    integrand = -p * (np.log(np.maximum(p, 1e-300)) - 2 * (np.log(2) - x - np.logaddexp(0, -2 * x)))
    return float(integrand.sum() * (x[1] - x[0]))  # of a smooth function that is 0 at both ends


def test_mean_soft_values_are_values_and_entropies() -> None:
    """V(s) = E[min Q - alpha log pi] = q + alpha H(pi) where both critics are constant."""
    ours, rows = model(ent_coef=0.4), 40_000
    with torch.no_grad():
        for network, constant in zip(ours.critic.q_networks, (1.5, 0.5), strict=True):
            network[-1].weight.zero_()
            network[-1].bias.fill_(constant)
        ours.actor.mu.weight.zero_()
        ours.actor.mu.bias.fill_(0.3)
        ours.actor.log_std.weight.zero_()
        ours.actor.log_std.bias.fill_(np.log(0.7))
    batch = some_batch(rows)
    found = ours.learner.soft_values(batch, *ours.actor.action_log_prob(batch.observations), torch.tensor(0.4))
    expected = 0.5 + 0.4 * entropy_of_tanh(0.3, 0.7)
    assert found.mean().item() == pytest.approx(expected, abs=sampling(rows, found.std().item()))


@pytest.mark.slow
def test_values_are_those_of_the_policy_that_acts() -> None:
    """Of one that stays, without rewards: V = alpha H / (1 - gamma), and Q = gamma V, eq. 2 and 3."""
    one = spaces.Box(-1, 1, (1,), np.float32)
    ours = model(
        World(observation_space=one, action_space=one, length=1, truncates=True), ent_coef=0.5, gamma=0.5, tau=0.05,
        learning_rate=lambda left: 1e-2 * left, batch_size=64, learning_rates={"actor": 0.0},
    )  # fmt: skip
    ours.learn(1_500)
    state, at = np.zeros((1, 1), np.float32), torch.zeros(1, 1)
    with torch.no_grad():
        mean, log_std, _ = ours.actor.get_action_dist_params(at)
        expected = 0.5 * entropy_of_tanh(mean.item(), log_std.exp().item()) / (1 - 0.5)
        action = torch.as_tensor(ours.predict(state, deterministic=True)[0])
        assert ours.value(at).item() == pytest.approx(expected, abs=0.03)
        for q in ours.critic(at, action):
            assert q.item() == pytest.approx(0.5 * expected, abs=0.03)


# -- what learns when --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [1, 3])
def test_the_target_follows_what_the_step_has_made_of_the_values(interval: int) -> None:
    ours = model(tau=0.25, target_update_interval=interval)
    expected = vectors(ours)["value_target"]
    torch.testing.assert_close(expected, vectors(ours)["value"])
    for step in range(1, 7):
        before = vectors(ours)
        update = ours.learner.update(some_batch())
        after = vectors(ours)
        for name in ("actor", "critic", "value"):
            assert not torch.equal(before[name], after[name])
        if step % interval == 0:
            expected = expected.lerp(after["value"], 0.25)
        torch.testing.assert_close(after["value_target"], expected)
        assert {"value_loss", "critic_loss", "actor_loss", "ent_coef"} <= update.metrics.keys()


def test_the_temperature_stays_unless_it_is_to_be_learned() -> None:
    ours = model().learn(40)
    assert ours.ent_coef == 0.2
    assert "ent_coef" not in ours.learner.optimizers
    learned = model(ent_coef="auto_0.3").learn(40)
    assert learned.log_ent_coef.exp().item() != pytest.approx(0.3)


def test_there_is_no_lagging_copy_of_the_critics() -> None:
    ours = model()
    assert not hasattr(ours, "critic_target")
    assert not any(p.requires_grad for p in ours.value_target.parameters())
    ours.policy.set_training_mode(True)
    assert ours.value.training
    assert not ours.value_target.training


def test_each_part_may_have_a_rate_of_its_own() -> None:
    ours = model(learning_rate=0.0, learning_rates={"value": 1e-3})
    before = vectors(ours)
    ours.learn(40)
    assert {name for name, vector in vectors(ours).items() if not torch.equal(vector, before[name])} == {
        *("value", "value_target")
    }


# -- arguments and files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": {"values": 1e-3}}, r"learning_rates=.* there is no part 'values'. Did you mean 'value'"),
        ({"ent_coef": -0.1}, r"ent_coef=-0.1 cannot be used"),
        ({"policy_kwargs": {"memory": "lstm"}}, r"memory='lstm', but this algorithm has no recurrent policy"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        model(**options)
    assert isinstance(refused.value, HyperparameterError) or "memory" in message


def test_a_file_for_stable_baselines3_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="SACV cannot be written for Stable-Baselines3"):
        model().save_sb3(tmp_path / "model")
