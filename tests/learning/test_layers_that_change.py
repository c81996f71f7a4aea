"""Layers that draw numbers or keep statistics, in programs: what they do is what they do line by line."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyak import DQN, PPO, SAC
from polyak.nn.networks.encoders import BaseFeaturesExtractor

pytestmark = pytest.mark.usefixtures("interpreted_if_quick")


class Encoder(BaseFeaturesExtractor):
    """One layer, and then another kind of layer.

    The first has no bias: batch normalisation would subtract it, so that its gradient is 0 but for rounding, of which
    Adam makes steps as long as any.
    """

    def __init__(self, space: Any, layer: Any) -> None:
        super().__init__(space, 8)
        self.layers = nn.Sequential(nn.Linear(space.shape[0], 8, bias=False), layer(), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def dropout() -> nn.Module:
    return nn.Dropout(0.3)


def batch_norm() -> nn.Module:
    return nn.BatchNorm1d(8)


def train(algorithm: Any, layer: Any, compile: bool | str) -> Any:
    kwargs = {"net_arch": [8], "features_extractor_class": Encoder, "features_extractor_kwargs": {"layer": layer}}
    env = "Pendulum-v1" if algorithm is SAC else "CartPole-v1"
    if algorithm is PPO:
        options: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "n_epochs": 2}
    else:
        options = {"learning_starts": 20, "batch_size": 16, "buffer_size": 200}
    return algorithm("MlpPolicy", env, device="cpu", seed=0, compile=compile, policy_kwargs=kwargs, **options).learn(64)


def assert_same(plain: Any, traced: Any) -> None:
    assert traced.engine.status in ("compiled", "replayed")
    assert traced.engine.programs
    theirs = traced.learner.state_dict()
    for name, tensor in plain.learner.state_dict().items():
        torch.testing.assert_close(theirs[name], tensor, rtol=0, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(
    ("algorithm", "layer"),
    [
        *((DQN, batch_norm), (PPO, dropout)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((SAC, dropout), (SAC, batch_norm), (DQN, dropout), (PPO, batch_norm))
        ),
    ],
)
@pytest.mark.parametrize("kind", [True, "replay"])
def test_a_traced_training_is_the_plain_one(algorithm: Any, layer: Any, kind: bool | str) -> None:
    plain, traced = (train(algorithm, layer, compile) for compile in (False, kind))
    assert_same(plain, traced)
    if layer is batch_norm:
        means = [
            b for name, b in traced.learner.named_buffers() if name.endswith("running_mean") and "target" not in name
        ]
        assert means
        assert all(mean.abs().max() > 0 for mean in means)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [dropout, batch_norm])
def test_a_compiled_training_is_the_plain_one(layer: Any) -> None:
    assert_same(*(train(DQN, layer, compile) for compile in (False, True)))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.q_net.features_extractor.layers[1], "p", 0.9),
        lambda model: model.q_net.features_extractor.layers[1].eval(),
    ],
)
def test_other_options_of_a_layer_are_noticed(change: Any) -> None:
    def trained(compile: bool, changed: bool) -> list[Tensor]:
        model = train(DQN, dropout, compile)
        if changed:
            change(model)
        torch.manual_seed(1)
        batch = next(iter(model.replay_buffer.transitions(16, 0.99, None, 1)))[0]
        model.learner.update(batch)
        return [p.detach().clone() for p in model.q_net.parameters()]

    plain, traced, before = trained(False, True), trained(True, True), trained(True, False)
    for ours, theirs in zip(plain, traced, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)
    assert any(not torch.allclose(a, b, rtol=0, atol=2e-5) for a, b in zip(traced, before, strict=True))


class Counts(nn.ReLU):
    """Changes a plain attribute whenever it is called."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def test_a_module_that_keeps_changing_ends_uncompiled() -> None:
    with pytest.raises(RuntimeError, match="compile=True, but .*the learner keeps changing: 8 programs"):
        train(DQN, Counts, True)
