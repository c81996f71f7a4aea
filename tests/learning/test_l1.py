"""The L1 penalty and weight decay of ``optimizer_kwargs``: by hand, as programs, in files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyak import DQN, PPO, SAC
from polyak.envs import make_vec_env
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.engine.program import Program
from tests.tolerance import bound, drift

RATE = 0.01


def make(cls: Any, optimizer: dict[str, Any] | None = None, kind: Any = torch.optim.SGD, **options: Any) -> Any:
    kwargs = {"net_arch": [8], "optimizer_class": kind, "optimizer_kwargs": optimizer or {}}
    small: dict[str, Any] = {"device": "cpu", "seed": 0, "learning_rate": RATE, "compile": False, **options}
    if cls is PPO:
        return PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, policy_kwargs=kwargs, **small)
    env = "CartPole-v1" if cls is DQN else "Pendulum-v1"
    small |= {"learning_starts": 20, "buffer_size": 500, "batch_size": 16}
    return cls("MlpPolicy", env, policy_kwargs=kwargs, **small)


def parts(model: Any) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.learner.named_parameters() if "target" not in name}


def stepped(model: Any) -> dict[str, Tensor]:
    """The parameters after one update on a batch."""
    generator = torch.Generator().manual_seed(1)
    if isinstance(model, PPO):
        model.learn(16)
        return parts(model)
    width, actions = model.observation_space.shape[0], torch.zeros(16, 1)
    numbers = [torch.randn(16, width, generator=generator) for _ in range(2)]
    rewards = torch.randn(16, generator=generator)
    torch.manual_seed(2)
    model.learner.update(Transition(numbers[0], actions, rewards, numbers[1], torch.full((16,), 0.9), torch.ones(16)))
    return parts(model)


@pytest.mark.parametrize("cls", [PPO, DQN, SAC])
def test_one_step_is_longer_by_the_sign_of_each_parameter(cls: Any) -> None:
    """w <- w - rate (g + l1 sign w), of SGD; SAC's critics are stepped first, so that its actor sees others."""
    before = parts(make(cls))
    plain, penalised = stepped(make(cls)), stepped(make(cls, {"l1": 0.3}))
    for name, w in before.items():
        if cls is SAC and not name.startswith("policy.critic"):
            continue
        expected = plain[name] - RATE * 0.3 * w.sign()
        torch.testing.assert_close(penalised[name], expected, rtol=0, atol=bound(6, 1))
    if cls is SAC:
        assert torch.equal(penalised["log_ent_coef"], plain["log_ent_coef"])  # the temperature is no weight


def test_it_comes_after_clipping() -> None:
    model = make(PPO, {"l1": 0.3}, max_grad_norm=1e-9)
    before = parts(model)
    for name, w in stepped(model).items():
        torch.testing.assert_close(w, before[name] - RATE * 0.3 * before[name].sign(), rtol=0, atol=bound(6, 1) + 1e-9)


def test_weights_that_nothing_else_moves_are_driven_to_zero() -> None:
    """Those of a network whose losses are constant: after |w| / (rate l1) steps no weight is larger than a step."""
    model = make(DQN, {"l1": 1.0}, gamma=0.0)
    before = max(float(w.abs().max()) for w in parts(model).values())
    batch = Transition(
        torch.zeros(4, 4), torch.zeros(4, 1), *[torch.zeros(4), torch.zeros(4, 4), *[torch.zeros(4)] * 2]
    )
    for _ in range(int(before / RATE) + 1):
        model.learner.update(batch)  # all rows have weight 0
    assert max(float(w.abs().max()) for w in parts(model).values()) <= RATE + 1e-6


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        pytest.param(cls, kind, marks=[] if (cls, kind) == (PPO, torch.optim.AdamW) else [pytest.mark.slow])
        for cls in (PPO, SAC)
        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
    ],
)
def test_traced_it_equals_eager(cls: Any, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    regular = {"l1": 0.1, "weight_decay": 0.1}
    eager, traced = (make(cls, regular, kind, compile=choice).learn(80) for choice in (False, True))
    assert traced.engine.status == "compiled"
    updates, ours, theirs = eager._n_updates, parts(eager), parts(traced)
    for name, w in ours.items():
        torch.testing.assert_close(w, theirs[name], rtol=0, atol=drift(updates, RATE, 16 + 8 + 8))
    without = parts(make(cls, {}, kind).learn(80))
    assert all(not torch.equal(w, without[name]) for name, w in ours.items() if name.startswith("policy"))


def test_resumed_from_a_file_it_is_bit_equal(tmp_path: Path) -> None:
    whole = make(DQN, {"l1": 1e-2}, torch.optim.Adam).learn(60)
    whole.save(tmp_path / "half", include=["replay_buffer"])
    whole.learn(60, reset_num_timesteps=False)
    env = make_vec_env("CartPole-v1", seed=5)
    resumed = DQN.load(tmp_path / "half", env=env, resume=True, force_reset=False, device="cpu")
    assert resumed.learner.optimizers["policy"].param_groups[0]["l1"] == 1e-2
    resumed.learn(60, reset_num_timesteps=False)
    vector = nn.utils.parameters_to_vector
    assert torch.equal(vector(whole.policy.parameters()), vector(resumed.policy.parameters()))


@pytest.mark.parametrize("l1", [-0.1, "much", None])
def test_what_cannot_be_is_refused(l1: Any) -> None:
    with pytest.raises(HyperparameterError, match=r"\['l1'\]=.* cannot be used: it must be a number of at least 0"):
        make(SAC, {"l1": l1})


def test_a_file_for_stable_baselines3_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"optimizer_kwargs\['l1'\] has no equal in Stable-Baselines3"):
        make(SAC, {"l1": 0.1}).save_sb3(tmp_path / "model")
