"""Parts of networks that are frozen by ``requires_grad``, and unfrozen again: they rest, and the others learn."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyak import DQN, PPO, SAC

pytestmark = pytest.mark.usefixtures("interpreted")


def make(algorithm: Any, compile: bool) -> Any:
    kwargs = {"net_arch": [8, 8]}
    if algorithm is PPO:
        return PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, n_epochs=2, device="cpu", seed=0,
                   compile=compile, policy_kwargs=kwargs)  # fmt: skip
    env = "Pendulum-v1" if algorithm is SAC else "CartPole-v1"
    return algorithm("MlpPolicy", env, learning_starts=8, batch_size=8, buffer_size=200, train_freq=4, device="cpu",
                     seed=0, compile=compile, policy_kwargs=kwargs)  # fmt: skip


def trunk(model: Any) -> list[nn.Module]:
    if isinstance(model, PPO):
        return [model.policy.mlp_extractor]
    if isinstance(model, SAC):
        return [model.actor.latent_pi, model.critic.qf0[:2], model.critic.qf1[:2]]
    return [model.q_net.q_net[:2]]


def all_but_the_head(model: Any) -> list[nn.Module]:
    if isinstance(model, PPO):
        return [model.policy.mlp_extractor, model.policy.value_net]
    if isinstance(model, SAC):
        return [model.actor.latent_pi, model.actor.log_std, model.critic]
    return [model.q_net.q_net[:-1]]


def everything(model: Any) -> list[nn.Module]:
    return [getattr(model, name) for name in {PPO: ["policy"], SAC: ["actor", "critic"], DQN: ["q_net"]}[type(model)]]


def values(parts: list[nn.Module]) -> list[Tensor]:
    return [p.detach().clone() for part in parts for p in part.parameters()]


def equal(ours: list[Tensor], theirs: list[Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]


def set_free(parts: list[nn.Module], free: bool) -> None:
    for part in parts:
        part.requires_grad_(free)


MOMENTS = list(product(["the start", "a later time"], [trunk, all_but_the_head, everything]))
#: Each time and each part once.
PAIRS = [("the start", trunk), ("a later time", all_but_the_head), ("a later time", everything)]


@pytest.mark.parametrize(
    ("algorithm", "at", "frozen"),
    [
        *((DQN, *case) for case in PAIRS),
        *(pytest.param(DQN, *case, marks=pytest.mark.slow) for case in MOMENTS if case not in PAIRS),
        *(pytest.param(PPO, *case, marks=pytest.mark.slow) for case in PAIRS[:2]),
        (PPO, *PAIRS[2]),
        *(pytest.param(SAC, *case, marks=pytest.mark.slow) for case in PAIRS),
    ],
)
def test_frozen_and_unfrozen_again(algorithm: Any, at: str, frozen: Callable[[Any], list[nn.Module]]) -> None:
    models = []
    for compile in (False, True):
        model = make(algorithm, compile)
        if at == "a later time":
            model.learn(32)
        parts = frozen(model)
        set_free(parts, False)
        before, online = values(parts), values(everything(model))
        model.learn(32, reset_num_timesteps=False)
        assert all(equal(before, values(parts)))
        assert all(equal(online, values(everything(model)))) == (frozen is everything)
        set_free(parts, True)
        model.learn(32, reset_num_timesteps=False)
        moved = [not same for same in equal(before, values(parts))]
        assert all(moved)
        if compile:
            assert model.engine.status == "compiled"
        models.append(model)
    plain, traced = models
    for name, tensor in plain.learner.state_dict().items():
        torch.testing.assert_close(traced.learner.state_dict()[name], tensor, rtol=0, atol=2e-5)
    for ours, theirs in zip(*(model.learner.optimizers.values() for model in models), strict=True):
        counts = [[float(state.get("step", -1)) for state in each.state.values()] for each in (ours, theirs)]
        assert counts[0] == counts[1]


def test_freezing_is_noticed_by_a_program() -> None:
    model = make(DQN, True).learn(32)
    model.q_net.q_net[0].requires_grad_(False)
    ((program,),) = model.engine.programs["gradient_step"].values()
    assert not program.current
    assert not program.rebind()


def test_a_norm_of_zero_lets_nothing_move() -> None:
    """As torch's ``clip_grad_norm_`` has it, and so third parties' algorithms that pass it through."""
    model = make(PPO, False)
    model.max_grad_norm = 0.0
    before = values([model.policy])
    model.learn(32)
    assert all(equal(before, values([model.policy])))
    assert all(float(p.grad.abs().max()) == 0 for p in model.policy.parameters())
