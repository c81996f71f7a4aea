"""One-step actor-critic: an update at every step, by temporal-difference errors, of two networks that share nothing."""

from typing import Any

import numpy as np
import pytest
import torch

from polyak import ActorCritic
from polyak.envs import make_vec_env
from tests.tolerance import bound

GAMMA = 0.9


def spied(n_envs: int = 3, **options: Any) -> tuple[ActorCritic, list[Any], list[Any]]:
    """A model with episodes that are cut and that end, the steps that it has stored, and what it learned from."""
    env = make_vec_env("CartPole-v1", n_envs=n_envs, seed=0, env_kwargs={"max_episode_steps": 12})
    model = ActorCritic("MlpPolicy", env, gamma=GAMMA, device="cpu", seed=0, compile=False, **options)
    steps: list[Any] = []
    batches: list[Any] = []
    record, update = model.rollout_buffer.record, model.learner.update

    def look(step: Any, **more: Any) -> None:
        steps.append(step)
        record(step, **more)

    def learn(batch: Any) -> Any:
        with torch.no_grad():  # before they move
            after = model.policy.predict_values(torch.as_tensor(steps[-1].next_observations)).flatten()
            before = model.policy.predict_values(torch.as_tensor(steps[-1].observations)).flatten()
        batches.append((batch, before.numpy(), after.numpy()))
        return update(batch)

    model.rollout_buffer.record, model.learner.update = look, learn
    return model, steps, batches


def test_every_step_brings_an_update_by_its_temporal_difference_error() -> None:
    model, steps, batches = spied()
    model.learn(150)
    assert len(steps) == len(batches) == model._n_updates == 50
    assert any(step.truncated.any() for step in steps)
    assert any(step.terminated.any() for step in steps)
    for step, (batch, before, after) in zip(steps, batches, strict=True):
        target = step.rewards + GAMMA * np.where(step.terminated, 0, after)
        rows = [int(np.flatnonzero((step.observations == obs).all(1))[0]) for obs in batch.observations.numpy()]
        np.testing.assert_allclose(batch.returns, target[rows], rtol=0, atol=bound(200, 10))
        np.testing.assert_allclose(batch.advantages, (target - before)[rows], rtol=0, atol=bound(200, 10))


def test_the_update_is_two_plain_steps() -> None:
    """theta += rate * E[delta grad log pi], w -= rate' * E[grad delta^2] with the target held fixed, by hand."""
    options = {"optimizer_class": torch.optim.SGD}
    model, _, batches = spied(learning_rate=0.1, critic_learning_rate=0.03, max_grad_norm=None, policy_kwargs=options)
    before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    model.learn(3)
    ((batch, _, _),) = batches
    after = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    with torch.no_grad():
        for name, p in model.policy.named_parameters():
            p.copy_(before[name])
    values, log_prob, _ = model.policy.evaluate_actions(batch.observations, batch.actions)
    critics = {id(p) for p in model.policy.critic_parameters()}
    gain, loss = (log_prob * batch.advantages).mean(), ((values.flatten() - batch.returns) ** 2).mean()
    for name, p in model.policy.named_parameters():
        objective, rate = (-loss, 0.03) if id(p) in critics else (gain, 0.1)
        (gradient,) = torch.autograd.grad(objective, p, retain_graph=True)
        torch.testing.assert_close(after[name], before[name] + rate * gradient)


@pytest.mark.parametrize("share", [False, True])
def test_features_that_both_read_belong_to_the_actor(share: bool) -> None:
    options = {"share_features_extractor": share, "net_arch": [8]}
    env = make_vec_env("CartPole-v1", n_envs=2)
    policy = ActorCritic("MlpPolicy", env, policy_kwargs=options, device="cpu").policy
    policy.features_extractor.layer = torch.nn.Linear(4, 4)  # as an extractor with weights would have
    if not share:
        policy.vf_features_extractor.layer = torch.nn.Linear(4, 4)
    actor, critic = policy.actor_parameters(), policy.critic_parameters()
    assert len(actor) + len(critic) == len(list(policy.parameters()))
    assert not {id(p) for p in actor} & {id(p) for p in critic}
    assert any(policy.features_extractor.layer.weight is p for p in actor)
    assert share or any(policy.vf_features_extractor.layer.weight is p for p in critic)
