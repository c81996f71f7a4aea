"""CrossQ: whose statistics each forward pass normalises by, what it minimises, and the numbers of sb3-contrib."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import CrossQ
from polyak.algorithms import sac
from polyak.envs.testing import SimpleMultiObsEnv
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn import BatchRenorm1d
from tests.compat.make_sb3_files import DATA
from tests.tolerance import CANCELLATION, bound, drift

THEIRS = np.load(DATA / "crossq.npz")
SMALL = {"net_arch": {"pi": [8], "qf": [12, 12]}}


def model(**options: Any) -> CrossQ:
    defaults = {"buffer_size": 500, "learning_starts": 20, "batch_size": 16, "policy_kwargs": SMALL}
    made = CrossQ("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", compile=False, **{**defaults, **options})
    made.policy.set_training_mode(True)
    return made


def batch(rows: int = 32) -> Transition:
    draws = torch.randn(rows, 3), torch.rand(rows, 1), torch.randn(rows), torch.randn(rows, 3)
    return Transition(*draws, discounts=torch.rand(rows), weights=torch.rand(rows))


def renormalising(network: nn.Module) -> list[BatchRenorm1d]:
    return [layer for layer in network.modules() if isinstance(layer, BatchRenorm1d)]


def seen(network: nn.Module) -> set[int]:
    return {int(layer.steps) for layer in renormalising(network)}


def test_each_network_takes_in_the_batches_of_its_own_loss() -> None:
    made = model()
    for step in range(1, 10):
        made.learner.update(batch())
        assert seen(made.critic) == {step}
        assert seen(made.actor) == {step // 3}
        assert all(layer.training for layer in renormalising(made.policy))


def test_both_sides_of_the_bellman_equation_are_normalised_together() -> None:
    made, rows = model(ent_coef=0.3), batch()
    torch.manual_seed(1)
    made.policy.set_training_mode(False)
    next_actions, log_prob = made.actor.action_log_prob(rows.next_observations)
    made.policy.set_training_mode(True)
    inputs = torch.cat(
        [torch.cat([rows.observations, rows.actions], 1), torch.cat([rows.next_observations, next_actions], 1)]
    )

    values = torch.stack([by_hand(network, inputs) for network in made.critic.q_networks])
    target = rows.rewards + rows.discounts * (values[:, 32:].amin(0) - 0.3 * log_prob)
    loss = sac.critic_loss(values[:, :32], target.detach(), rows.weights)
    gradients = torch.autograd.grad(loss, list(made.critic.parameters()))

    torch.manual_seed(1)
    update = made.learner.critic_step(rows)
    size = values.abs().max().item() + target.abs().max().item()
    torch.testing.assert_close(update.metrics["critic_loss"], loss.detach())
    torch.testing.assert_close(update.td_error, (values[:, :32] - target).abs().mean(0), rtol=0, atol=bound(64, size))
    for parameter, gradient in zip(made.critic.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=bound(64, CANCELLATION), atol=bound(64, size))


def by_hand(network: Any, x: Tensor) -> Tensor:
    for layer in network:
        if isinstance(layer, BatchRenorm1d):  # scale and bias are 1 and 0, and the warm-up has just begun
            x = (x - x.mean(0)) / (x.var(0) + layer.eps).sqrt() * layer.scale + layer.bias
        else:
            x = layer(x)
    return x.squeeze(1)


def test_the_actor_follows_the_critics_of_evaluation() -> None:
    made, rows = model(ent_coef=0.3), batch()
    for _ in range(2):
        made.learner.critic_step(rows)
    torch.manual_seed(1)
    made.critic.set_training_mode(False)
    actions, log_prob = made.actor.action_log_prob(rows.observations)
    loss = sac.actor_loss(made.critic.q_values(rows.observations, actions), log_prob, torch.tensor(0.3))
    made.critic.set_training_mode(True)
    torch.manual_seed(1)
    torch.testing.assert_close(made.learner.actor_step(rows)["actor_loss"], loss.detach())


def test_gradient_steps_come_to_the_numbers_of_sb3_contrib() -> None:
    """From the same file, batch and draws, through the end of the warm-up."""
    made = CrossQ.load(DATA / "crossq.zip", device="cpu")
    made.policy.set_training_mode(True)
    parts = ("observations", "actions", "next_observations", "dones", "rewards")
    obs, actions, next_obs, dones, rewards = (torch.from_numpy(THEIRS[f"crossq_batch/{part}"]) for part in parts)
    rows = Transition(obs, actions, rewards[:, 0], next_obs, 0.99 * (1 - dones[:, 0]), torch.ones(8))
    near = drift(21, 1e-3, 28)  # 2 * 8 rows and 3 layers of 4
    for step in range(9):
        torch.manual_seed(step)
        metrics = made.learner.update(rows).metrics
        theirs = dict(zip(("critic_loss", "actor_loss", "ent_coef_loss"), THEIRS[f"crossq_losses/{step}"], strict=True))
        assert ("actor_loss" in metrics) == ((12 + step + 1) % 3 == 0)
        for name in theirs.keys() & metrics.keys():
            assert metrics[name].item() == pytest.approx(theirs[name], rel=bound(28, CANCELLATION), abs=near), (
                step,
                name,
            )
    assert seen(made.critic) == {21}
    for name, tensor in {**made.policy.state_dict(), "log_ent_coef": made.log_ent_coef.detach()}.items():
        theirs = torch.from_numpy(THEIRS[f"crossq_after/{name}"])
        torch.testing.assert_close(tensor, theirs, rtol=0, atol=near, msg=lambda text, n=name: f"{n}: {text}")


def test_nothing_lags_behind() -> None:
    made = model()
    assert not [name for name, _ in made.policy.named_modules() if "target" in name]
    assert not hasattr(made, "critic_target")
    with pytest.raises(TypeError, match="unexpected keyword argument 'tau'"):
        model(tau=0.01)


def test_its_widths_and_its_optimizers() -> None:
    made = model(policy_kwargs={})
    assert [layer.out_features for layer in made.critic.qf0 if isinstance(layer, nn.Linear)] == [1024, 1024, 1]
    assert [layer.out_features for layer in made.actor.latent_pi if isinstance(layer, nn.Linear)] == [256, 256]
    betas = {name: optimizer.defaults["betas"] for name, optimizer in made.learner.optimizers.items()}
    assert betas == {"actor": (0.5, 0.999), "critic": (0.5, 0.999), "ent_coef": (0.9, 0.999)}
    decayed = model(policy_kwargs={**SMALL, "optimizer_class": torch.optim.AdamW})
    assert decayed.critic.optimizer.defaults["betas"] == (0.5, 0.999)
    usual = model(policy_kwargs={**SMALL, "optimizer_kwargs": {"eps": 1e-5}})
    assert usual.critic.optimizer.defaults["betas"] == (0.9, 0.999)


def test_options_reach_actor_and_critics() -> None:
    options = {"batch_norm_momentum": 0.2, "batch_norm_eps": 0.01, "renorm_warmup_steps": 7}
    made = model(policy_kwargs={**SMALL, **options})
    for network, layers in ((made.actor, 2), (made.critic, 6)):
        found = {(layer.momentum, layer.eps, layer.warmup_steps) for layer in renormalising(network)}
        assert found == {(0.2, 0.01, 7)}
        assert len(renormalising(network)) == layers
    assert not renormalising(model(policy_kwargs={**SMALL, "batch_norm": False}).policy)


def test_one_row_cannot_be_normalised() -> None:
    with pytest.raises(HyperparameterError, match=r"batch_size=1 .*one row cannot be normalised"):
        model(batch_size=1)


@pytest.mark.parametrize(
    "options", [{"n_steps": 3, "policy_delay": 1}, {"replay_buffer_kwargs": {"sampler": "prioritized"}}], ids=str
)
def test_other_ways_to_replay(options: dict[str, Any]) -> None:
    made = model(**options).learn(60)
    assert made._n_updates == 40
    assert seen(made.critic) == {40}


def test_dicts_of_observations() -> None:
    env = SimpleMultiObsEnv(random_start=False, discrete_actions=False)
    options = {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}}
    made = CrossQ("MultiInputPolicy", env, learning_starts=10, batch_size=8, buffer_size=100, policy_kwargs=options)
    assert made.learn(20)._n_updates == 10
