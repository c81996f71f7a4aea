"""bfloat16: layers' products are rounded, nothing else is; plain and compiled steps agree."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyak import PPO, SAC
from polyak.envs.testing import IdentityEnv, IdentityEnvBox
from polyak.experience import Transition
from polyak.learning.engine.program import Program
from polyak.nn.precision import PRODUCTS_IN
from tests.pairs import one_of_each
from tests.tolerance import bound, drift


def sac(**options: Any) -> SAC:
    settings = {"learning_starts": 50, "batch_size": 64, "buffer_size": 2_000, "learning_rate": 3e-3, "gamma": 0.4}
    return SAC(
        "MlpPolicy", IdentityEnvBox(eps=0.3, ep_length=50), policy_kwargs={"net_arch": [32, 32]}, seed=1, device="cpu",
        **settings | options,
    )  # fmt: skip


def ppo(**options: Any) -> PPO:
    settings = {"n_steps": 128, "batch_size": 64, "learning_rate": 3e-3, "n_epochs": 5, "gamma": 0.4}
    return PPO("MlpPolicy", IdentityEnv(4, ep_length=50), seed=3, device="cpu", **settings | options)


def batch_of(model: Any) -> Any:
    if isinstance(model, SAC):
        return Transition.from_samples(model.replay_buffer.sample(64), model.gamma)
    return next(iter(model.rollout_buffer.get(64)))


def gradients(model: Any, batch: Any, precision: str) -> dict[str, Tensor]:
    """Of each optimizer's parameters, in a gradient step of a copy; joined to one vector."""
    twin = copy.deepcopy(model)
    twin.learner.precision = precision
    torch.manual_seed(0)
    static = (True,) if isinstance(model, SAC) else ()
    twin.learner.eagerly(twin.learner.gradient_step, batch, *static)
    return {
        name: torch.cat([p.grad.flatten() for group in optimizer.param_groups for p in group["params"]])
        for name, optimizer in twin.learner.optimizers.items()
    }


def test_products_alone_are_rounded() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(32, 8), torch.randn(16, 32)
    with PRODUCTS_IN["bfloat16"]():
        rounded = layer(x)
        assert not torch.equal(x @ layer.weight.T, F.linear(x, layer.weight))
        assert nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2)).dtype is torch.float32
        assert torch.equal(F.linear(input=x, weight=layer.weight, bias=layer.bias), rounded)
    exact = layer(x)
    assert rounded.dtype is torch.float32
    assert not torch.equal(rounded, exact)
    half = 2.0**-7  # the epsilon of bfloat16, to which inputs, weights and the result are rounded
    torch.testing.assert_close(rounded, exact, rtol=0, atol=2 * half * (x.abs() @ layer.weight.abs().T).max().item())
    with PRODUCTS_IN["float32"]():
        assert torch.equal(layer(x), exact)


def test_weights_that_moved_are_not_taken_from_memory() -> None:
    layer, x = nn.Linear(2, 1), torch.ones(1, 2)
    with PRODUCTS_IN["bfloat16"]():
        before = layer(x)
        with torch.no_grad():
            layer.bias.add_(1.0)
        torch.testing.assert_close(layer(x), before + 1.0, rtol=0, atol=4 * 2.0**-7)  # bfloat16


@pytest.mark.parametrize("make", [sac, ppo])
def test_gradients_are_those_of_float32_but_for_rounding(make: Any) -> None:
    model = make().learn(150)
    batch = batch_of(model)
    exact, rounded = (gradients(model, batch, precision) for precision in ("float32", "bfloat16"))
    for name, ours in rounded.items():
        assert ours.dtype is torch.float32
        assert not torch.equal(ours, exact[name]) or name == "ent_coef"
        assert float((ours - exact[name]).norm() / exact[name].norm()) < 0.05, name


@pytest.mark.parametrize("make", one_of_each([sac, ppo], ppo))
def test_compiled_it_is_the_plain_step(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    plain, traced = (make(precision="bfloat16", compile=choice).learn(100) for choice in (False, True))
    batch = batch_of(plain)
    for model in (plain, traced):
        torch.manual_seed(0)
        model.learner.update(batch)
    assert traced.engine.status == "compiled"
    theirs = traced.learner.state_dict()
    for name, tensor in plain.learner.state_dict().items():
        near = drift(plain.learner.steps, 3e-3, terms=64 + 2 * 64)
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=near)


def test_parameters_and_optimizers_stay_in_float32() -> None:
    model = sac(precision="bfloat16").learn(60)
    assert {tensor.dtype for tensor in model.learner.state_dict().values()} == {torch.float32}
    states = [state for optimizer in model.learner.optimizers.values() for state in optimizer.state.values()]
    assert {tensor.dtype for state in states for tensor in state.values()} == {torch.float32}
    assert not torch.is_autocast_enabled("cpu")


def test_ratios_of_probabilities_begin_at_one() -> None:
    model = ppo(precision="bfloat16", n_epochs=1, batch_size=128)
    model.learn(128)
    type(model).loop(model, model._setup_learn(128)[1], None).collect(128)
    metrics = model.learner.update(next(iter(model.rollout_buffer.get(128)))).metrics
    assert float(metrics["clip_fraction"]) == 0.0
    assert abs(float(metrics["approx_kl"])) < bound(4, size=2)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "steps"), [(sac, 800), (ppo, 2_500)])
def test_it_still_learns(make: Any, steps: int) -> None:
    model = make(precision="bfloat16").learn(steps)
    env, total = model.get_env(), 0.0
    observation = env.reset()
    for _ in range(200):
        observation, reward, _, _ = env.step(model.predict(observation, deterministic=True)[0])
        total += float(reward[0])
    assert total >= 200 * (0.85 if make is sac else 0.95)


def test_it_is_saved_with_the_model(tmp_path: Path) -> None:
    ppo(precision="bfloat16").save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model")
    assert loaded.precision == loaded.learner.precision == "bfloat16"
    assert PPO.load(tmp_path / "model", precision="float32").learner.precision == "float32"


def test_another_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="precision='float16' cannot be used: it must be 'float32' or 'bfloat16'"):
        ppo(precision="float16")
