"""ReBRAC: both penalties by loops, the next action of each step, and what happens without one."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import ReBRAC
from polyak.algorithms import rebrac
from polyak.experience import Dataset, Transition, collect
from polyak.hyperparameters.declaration import HyperparameterError
from tests.algorithms.rows import seeded  # noqa: F401

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 16, "device": "cpu", "seed": 0}


def some_data() -> Dataset:
    """Episodes of 3, 1 and 4 steps; the second ends in a terminal state."""
    actions = np.arange(16, dtype=np.float32).reshape(8, 2) / 10
    ends = np.array([0, 0, 1, 1, 0, 0, 0, 1], bool)
    terminations = np.zeros(8, bool)
    terminations[3] = True
    rng = np.random.RandomState(0)
    return Dataset(
        observations=rng.randn(8, 3).astype(np.float32),
        next_observations=rng.randn(8, 3).astype(np.float32),
        actions=actions,
        rewards=np.arange(8.0),
        terminations=terminations,
        truncations=ends & ~terminations,
        action_space=gym.spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([3.0, 2.0], np.float32)),
    )


def chained() -> Dataset:
    """The same with successors that follow one another, so that its episodes stay whole."""
    data = some_data()
    observations = np.random.RandomState(1).randn(11, 3).astype(np.float32)
    return Dataset(observations, data.actions, data.rewards, *flags(), action_space=data.action_space)


def flags() -> tuple[np.ndarray, np.ndarray]:
    terminations, truncations = np.zeros(8, bool), np.zeros(8, bool)
    terminations[3], truncations[2], truncations[7] = True, True, True
    return terminations, truncations


def some_batch(rows: int, continues: Tensor) -> Transition:
    return Transition(
        observations=torch.randn(rows, 3),
        actions=torch.rand(rows, 2) * 2 - 1,
        rewards=torch.randn(rows),
        next_observations=torch.randn(rows, 3),
        discounts=torch.full((rows,), 0.9),
        weights=torch.ones(rows),
        extras={"next_actions": torch.rand(rows, 2) * 2 - 1, "continues": continues},
    )


# -- penalties ---------------------------------------------------------------------------------------------------------


def test_the_target_is_penalised_where_there_is_a_next_action() -> None:
    ours = ReBRAC("MlpPolicy", chained(), critic_bc_coef=0.7, target_policy_noise=0.0, **SMALL)
    batch = some_batch(6, torch.tensor([True, False, True, True, False, True]))
    target = ours.learner.td_target(batch)
    with torch.no_grad():
        own = ours.actor_target(batch.next_observations)
        q = ours.critic_target.q_values(batch.next_observations, own)
    for b in range(6):
        gap = sum((own[b, a] - batch.extras["next_actions"][b, a]).item() ** 2 for a in range(2))
        penalty = 0.7 * gap if batch.extras["continues"][b] else 0.0
        expected = batch.rewards[b].item() + 0.9 * (min(q[0, b].item(), q[1, b].item()) - penalty)
        assert target[b].item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_the_smoothed_action_is_what_is_penalised() -> None:
    ours = ReBRAC("MlpPolicy", chained(), critic_bc_coef=1.0, **SMALL)
    batch = some_batch(6, torch.ones(6, dtype=torch.bool))
    torch.manual_seed(3)
    target = ours.learner.td_target(batch)
    torch.manual_seed(3)
    with torch.no_grad():
        own = (ours.actor_target(batch.next_observations) + (torch.randn(6, 2) * 0.2).clamp(-0.5, 0.5)).clamp(-1, 1)
        q = ours.critic_target.q_values(batch.next_observations, own).amin(0)
    distance = ((own - batch.extras["next_actions"]) ** 2).sum(1)
    torch.testing.assert_close(target, batch.rewards + 0.9 * (q - distance))


@pytest.mark.parametrize("normalises", [True, False])
def test_the_actors_loss_is_that_of_loops(normalises: bool) -> None:
    q, distance = torch.randn(2, 5, requires_grad=True), torch.rand(5, requires_grad=True)
    loss = rebrac.actor_loss(q, distance, torch.tensor(0.3), normalises)
    smaller = [min(q[0, b].item(), q[1, b].item()) for b in range(5)]
    scale = 5 / sum(map(abs, smaller)) if normalises else 1.0
    expected = sum(0.3 * distance[b].item() - scale * smaller[b] for b in range(5)) / 5
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    by_q, by_distance = torch.autograd.grad(loss, (q, distance))
    torch.testing.assert_close(by_distance, torch.full((5,), 0.3 / 5))
    assert by_q.sum().item() == pytest.approx(-scale, rel=1e-5), "the normaliser is a number"


def test_distances_are_summed_over_dimensions() -> None:
    ours, taken = torch.tensor([[1.0, 0.0], [0.5, -0.5]]), torch.tensor([[0.0, 0.0], [-0.5, 0.5]])
    torch.testing.assert_close(rebrac.squared_distance(ours, taken), torch.tensor([1.0, 2.0]))


def test_hidden_layers_of_critics_are_normalised_after_their_activation() -> None:
    ours = ReBRAC("MlpPolicy", chained(), **{**SMALL, "policy_kwargs": {"net_arch": [8, 6]}})
    hidden = [nn.Linear, nn.ReLU, nn.LayerNorm]
    for network in (*ours.critic.q_networks, *ours.critic_target.q_networks):
        assert [type(layer) for layer in network] == [*hidden, *hidden, nn.Linear]
    assert not any(isinstance(layer, nn.LayerNorm) for layer in ours.actor.modules())


# -- the next action ---------------------------------------------------------------------------------------------------


def test_the_next_action_is_that_of_the_same_episode_in_the_networks_units() -> None:
    data = chained()
    assert data.lengths.tolist() == [3, 1, 4]
    ours = ReBRAC("MlpPolicy", data, **SMALL)
    columns = ours.data_buffer.extras
    continues = columns["continues"][:, 0]
    assert continues.tolist() == [True, True, False, False, True, True, True, False]
    scaled = np.stack([(data.actions[:, 0] + 1) / 2 - 1, data.actions[:, 1] / 2], 1)
    for row in range(8):
        expected = scaled[row + 1] if continues[row] else np.zeros(2)
        np.testing.assert_allclose(columns["next_actions"][row, 0], expected, rtol=0, atol=1e-6)
    assert "next_actions" not in data.columns, "what was given stays as it is"


def test_transitions_in_any_order_have_no_next_action() -> None:
    ours = ReBRAC("MlpPolicy", some_data(), **SMALL).learn(5)
    assert not ours.data_buffer.extras["continues"].any()


def test_it_goes_on_by_acting_without_a_penalty_for_what_it_did_itself() -> None:
    ours = ReBRAC("MlpPolicy", collect("Pendulum-v1", None, 150, seed=0), **SMALL).learn(20)
    ours.set_env(gym.make_vec("Pendulum-v1", num_envs=2))
    ours.learn(40)
    assert ours._n_updates == 20 + 20
    assert ours.replay_buffer.size() == 20
    assert not ours.replay_buffer.extras["continues"].any()
    assert ours.data_buffer.extras["continues"].sum() == 149


def test_sums_of_rewards_are_refused() -> None:
    with pytest.raises(HyperparameterError, match="n_steps=3 cannot be used: the penalty of the critics"):
        ReBRAC("MlpPolicy", chained(), n_steps=3, **SMALL)
