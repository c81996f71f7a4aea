"""FastTD3: targets and losses against brute force, and noise of another size in every environment."""

from typing import Any

import numpy as np
import pytest
import torch

from polyak import FastTD3
from polyak.algorithms import fast_td3
from polyak.collecting.exploration import MixedNoise
from polyak.envs import make_vec_env
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.policies.categorical_critic import CategoricalCritic
from tests.tolerance import bound, sampling

ROWS, ATOMS = 5, 7


def make(**options: Any) -> FastTD3:
    kwargs = {"net_arch": [8, 8]}
    settings = {"buffer_size": 300, "batch_size": 8, "n_atoms": ATOMS, "v_min": -2.0, "v_max": 1.0, **options}
    return FastTD3("MlpPolicy", "Pendulum-v1", policy_kwargs=kwargs, device="cpu", seed=0, **settings)


def a_batch() -> Transition:
    rng = np.random.default_rng(0)
    obs, then = (torch.from_numpy(rng.standard_normal((ROWS, 3)).astype(np.float32)) for _ in range(2))
    actions = torch.from_numpy(rng.uniform(-1, 1, (ROWS, 1)).astype(np.float32))
    rewards, weights = (torch.from_numpy(rng.standard_normal(ROWS).astype(np.float32)) for _ in range(2))
    return Transition(obs, actions, rewards, then, torch.tensor([0.9, 0.0, 0.9, 0.81, 0.9]), weights.abs())


def projected(probs: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """On the support of these tests, each atom shared by its neighbours."""
    result, gap = np.zeros(ATOMS), 3 / (ATOMS - 1)
    for p, atom in zip(probs, atoms.clip(-2, 1), strict=True):
        place = (atom + 2) / gap
        for k in range(ATOMS):
            result[k] += p * max(0.0, 1 - abs(place - k))
    return result


@pytest.mark.parametrize("clipped", [True, False])
def test_target_by_its_definition(clipped: bool) -> None:
    model, batch = make(clipped_double_q=clipped), a_batch()
    policy, support = model.policy, np.linspace(-2, 1, ATOMS)
    torch.manual_seed(3)
    actual = model.learner.td_target(batch)
    torch.manual_seed(3)
    with torch.no_grad():
        noise = (torch.randn(ROWS, 1) * model.target_policy_noise).clamp(-0.5, 0.5)
        actions = (policy.actor_target(batch.next_observations) + noise).clamp(-1, 1)
        inputs = torch.cat([batch.next_observations, actions], 1)
        probs = [network(inputs).softmax(1).double().numpy() for network in policy.critic_target.q_networks]
    for i in range(ROWS):
        chosen = min((p[i] for p in probs), key=lambda p: p @ support) if clipped else (probs[0][i] + probs[1][i]) / 2
        expected = projected(chosen, batch.rewards[i].item() + batch.discounts[i].item() * support)
        np.testing.assert_allclose(actual[i].numpy(), expected, rtol=0, atol=bound(100, 7))


def test_the_critics_loss_is_a_sum_of_weighted_cross_entropies() -> None:
    rng = np.random.default_rng(1)
    logits, target = (
        torch.from_numpy(rng.standard_normal((2, ROWS, ATOMS))),
        torch.from_numpy(rng.random((ROWS, ATOMS))),
    )
    target, weights = target / target.sum(1, keepdim=True), torch.from_numpy(rng.random(ROWS))
    expected = 0.0
    for k in range(2):
        for i in range(ROWS):
            log_p = logits[k, i] - torch.log(torch.exp(logits[k, i]).sum())
            expected -= weights[i] * (target[i] * log_p).sum() / ROWS
    actual = fast_td3.critic_loss(logits.log_softmax(2), target, weights)
    assert float(actual) == pytest.approx(float(expected), rel=bound(100, 4, np.float64))


@pytest.mark.parametrize("clipped", [True, False])
def test_the_actor_is_judged_by_the_smaller_or_the_mean_value(clipped: bool) -> None:
    model, batch = make(clipped_double_q=clipped), a_batch()
    q = model.policy.critic.q_values(batch.observations, batch.actions)
    both = torch.stack(model.policy.critic(batch.observations, batch.actions)).squeeze(2)
    torch.testing.assert_close(both, q)
    torch.testing.assert_close(model.policy.critic.q1_forward(batch.observations, batch.actions)[:, 0], q[0])
    expected = torch.minimum(q[0], q[1]) if clipped else (q[0] + q[1]) / 2
    torch.testing.assert_close(model.learner.q_of_policy(batch, batch.actions), expected)


def test_each_environment_draws_the_size_of_its_noise_for_each_episode() -> None:
    np.random.seed(0)
    noise, policy = MixedNoise(0.1, 0.3), None
    noise.before(policy, np.ones(4, bool))
    first = noise.sizes.copy()
    assert len(set(first)) == 4
    assert ((first >= 0.1) & (first <= 0.3)).all()
    noise.before(policy, np.array([False, True, False, False]))
    assert (noise.sizes == first).tolist() == [True, False, True, True]
    draws = np.stack([noise.after(np.zeros((4, 2))) for _ in range(4000)])
    deviations = draws.std((0, 2))
    np.testing.assert_allclose(deviations, noise.sizes, rtol=sampling(8000, 1 / 2**0.5))
    assert (np.abs(noise.after(np.ones((4, 2)))) <= 1).all()


def test_it_is_made_for_many_environments() -> None:
    env = make_vec_env("Pendulum-v1", 4, seed=0)
    model = FastTD3(
        "MlpPolicy", env, buffer_size=400, batch_size=32, learning_starts=40, policy_kwargs={"net_arch": [16]}, seed=0
    )
    model.learn(200)
    assert model._n_updates == 2 * (200 - 40) // 4
    assert isinstance(model.critic, CategoricalCritic)
    assert {type(o) for o in model.learner.optimizers.values()} == {torch.optim.AdamW}
    assert all(o.param_groups[0]["weight_decay"] == 0.1 for o in model.learner.optimizers.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"v_min": 1.0}, "v_min=1.0 cannot be used: it must lie below v_max=1.0"),
        ({"noise_min": 0.5}, "noise_min=0.5 cannot be used: it must not exceed noise_max=0.4"),
    ],
)
def test_contradictions_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        make(**options)
