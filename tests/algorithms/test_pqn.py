"""PQN: returns by their recursion, layer normalisation where it belongs, and its optimizer."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak import DQN, PQN
from polyak.envs import make_vec_env
from polyak.nn.policies.value import GreedyPolicy
from tests.algorithms.test_deep_sarsa import Restless
from tests.fields.test_masks import Forbidding
from tests.tolerance import bound

GAMMA, STEPS = 0.9, 40


def collected(decay: float, env: Any) -> tuple[PQN, list[Any]]:
    """A model that does not learn, and the steps of its rollout."""
    options = {"n_steps": STEPS, "batch_size": STEPS, "gamma": GAMMA, "gae_lambda": decay, "exploration_final_eps": 1.0}
    model = PQN("MlpPolicy", env, **options, device="cpu", seed=0)
    steps: list[Any] = []
    record = type(model.rollout_buffer).record

    def look(step: Any, **more: Any) -> None:
        steps.append(step)
        record(model.rollout_buffer, step, **more)

    model.train = lambda: None
    prepare = model._prepare_to_learn

    def watch(reset: bool) -> None:
        prepare(reset)  # the first reset may show that there are masks, for which the buffer is made anew
        model.rollout_buffer.record = look

    model._prepare_to_learn = watch
    model.learn(STEPS)
    return model, steps


@pytest.mark.parametrize("decay", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_returns_by_their_recursion(decay: float, masked: bool) -> None:
    """G_t = r + gamma (lambda G_(t+1) + (1 - lambda) max_a Q(s', a)), whatever was explored in between."""
    env = Forbidding(spaces.Discrete(4), cuts=True) if masked else Restless()
    model, steps = collected(decay, env)
    assert any(step.truncated[0] for step in steps)
    assert masked or any(step.terminated[0] for step in steps)

    def best(step: Any) -> float:
        with torch.no_grad():
            q = model.q_net(torch.as_tensor(step.next_observations))[0].numpy()
        return float(q[step.next_observations[0] > 0].max() if masked else q.max())  # it shows what it allows

    returns = np.zeros(STEPS)
    for t in reversed(range(STEPS)):
        step = steps[t]
        returns[t] = step.rewards[0]
        if not step.terminated[0]:
            last = step.truncated[0] or t == STEPS - 1
            after = best(step)
            returns[t] += GAMMA * (after if last else decay * returns[t + 1] + (1 - decay) * after)
    np.testing.assert_allclose(model.rollout_buffer.returns.reshape(-1), returns, rtol=0, atol=bound(STEPS * 80, 5))


def test_it_learns_from_every_row_once_in_each_pass() -> None:
    with pytest.warns(UserWarning, match="batch_size=16 is not a factor"):
        model = PQN("MlpPolicy", "CartPole-v1", n_steps=50, batch_size=16, n_epochs=3, device="cpu", seed=0)
    batches: list[Any] = []
    update = model.learner.update
    model.learner.update = lambda batch: (batches.append(batch), update(batch))[1]
    model.learn(50)
    assert [len(batch.returns) for batch in batches] == [16, 16, 16, 2] * 3
    for first in (0, 4, 8):
        seen = torch.cat([batch.observations for batch in batches[first : first + 4]])
        assert len(seen.unique(dim=0)) == 50
    with pytest.raises(ValueError, match=r"batch_size=64 .*only n_steps \* n_envs = 8"):
        PQN("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=64)


def test_a_gradient_step_moves_the_values_of_actions_taken_towards_returns() -> None:
    model = PQN("MlpPolicy", "CartPole-v1", policy_kwargs={"optimizer_class": torch.optim.SGD}, device="cpu", seed=0)
    model.learn(32)
    batch = next(model.rollout_buffer.get(None))
    q = model.q_net(batch.observations)[torch.arange(32), batch.actions.long().flatten()]
    parameters = list(model.q_net.parameters())
    gradients = torch.autograd.grad(((batch.returns - q) ** 2).mean(), parameters)
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    step = model.learning_rate * min(1, 10 / norm)
    expected = [p.detach() - step * g for p, g in zip(parameters, gradients, strict=True)]
    model.learner.update(batch)
    torch.testing.assert_close([p.detach() for p in parameters], expected)


def layers(policy: Any) -> list[type[nn.Module]]:
    return [type(layer) for layer in policy.q_net.q_net.modules() if not isinstance(layer, nn.Sequential)]


def test_hidden_layers_are_normalised_before_their_activation() -> None:
    hidden = [nn.Linear, nn.LayerNorm, nn.ReLU]
    model = PQN("MlpPolicy", "CartPole-v1", device="cpu")
    assert layers(model.policy) == [*hidden, *hidden, nn.Linear]
    assert isinstance(model.learner.optimizers["policy"], torch.optim.RAdam)
    plain = PQN("MlpPolicy", "CartPole-v1", policy_kwargs={"layer_norm": False}, device="cpu")
    assert nn.LayerNorm not in layers(plain.policy)
    other = DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"layer_norm": True}, device="cpu")
    assert layers(other.policy) == layers(model.policy)
    streams = GreedyPolicy(spaces.Box(-1, 1, (3,)), spaces.Discrete(4), layer_norm=True, dueling=True)
    assert layers(streams).count(nn.LayerNorm) == 3  # one that is shared, and one of each stream
    pictures = GreedyPolicy(spaces.Box(0, 255, (3, 36, 36), np.uint8), spaces.Discrete(4), layer_norm=True)
    assert layers(pictures) == [*hidden, nn.Linear]


def test_each_environment_explores_by_itself() -> None:
    env = make_vec_env("CartPole-v1", n_envs=500, seed=0)
    model = PQN("MlpPolicy", env, device="cpu", seed=0)
    with torch.no_grad():
        model.q_net.q_net[-1].bias[:] = torch.tensor([100.0, 0.0])  # so that 1 is never the best
    model.runner.reset()
    actor = model.runner.actor
    for rate, ones in ((0.0, 0), (1.0, 250), (0.4, 100)):
        model.exploration_rate = rate
        counts = [int(actor.act(model.runner.obs).actions.sum()) for _ in range(20)]
        error = 5 * (500 * 20 * 0.25) ** 0.5  # five standard errors at most
        assert abs(sum(counts) - 20 * ones) <= (error if rate else 0)
        assert max(counts) - min(counts) < 120, "not all at once"
