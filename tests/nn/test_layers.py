"""Perceptrons and net_arch."""

import pytest
from torch import nn

from polyak.nn import MlpExtractor, PolicyError, create_mlp, get_actor_critic_arch


def kinds(layers):
    return [type(layer).__name__ for layer in layers]


def test_create_mlp_with_modules_around_the_linear_layers_and_without_bias():
    layers = create_mlp(
        3, 2, [4], with_bias=False, pre_linear_modules=[nn.LayerNorm], post_linear_modules=[nn.BatchNorm1d]
    )
    assert kinds(layers) == ["LayerNorm", "Linear", "BatchNorm1d", "ReLU", "LayerNorm", "Linear"]
    assert layers[0].normalized_shape == (3,)
    assert layers[4].normalized_shape == (4,)
    assert all(layer.bias is None for layer in layers if isinstance(layer, nn.Linear))


@pytest.mark.parametrize("widths", ["64", [64, 0], [64.0], [True], 64, [None]])
def test_widths_that_are_no_widths_are_refused(widths):
    with pytest.raises(PolicyError, match="list of positive integers"):
        create_mlp(3, 2, widths)


@pytest.mark.parametrize("activation", ["relu", nn.ReLU()])
def test_an_activation_that_is_no_class_is_refused(activation):
    with pytest.raises(PolicyError, match=r"torch\.nn\.ReLU"):
        create_mlp(3, 2, [4], activation)


def test_old_and_foreign_spellings_of_net_arch():
    with pytest.warns(UserWarning, match="old spelling"):
        assert MlpExtractor(3, [{"pi": [4], "vf": [5]}], nn.Tanh, device="cpu").latent_dim_vf == 5
    with pytest.raises(PolicyError, match="share"):
        MlpExtractor(3, [64, {"pi": [4], "vf": [5]}], nn.Tanh)
    with pytest.raises(PolicyError, match=r"unknown keys \['qf'\].*\['pi', 'vf'\]"):
        MlpExtractor(3, {"pi": [4], "qf": [5]}, nn.Tanh)


def test_actor_and_critic_widths():
    assert get_actor_critic_arch([3, 4]) == ([3, 4], [3, 4])
    assert get_actor_critic_arch({"pi": [1], "qf": []}) == ([1], [])
    for arch, missing in (({"pi": [1]}, "'qf'"), ({"qf": [1]}, "'pi'")):
        with pytest.raises(PolicyError, match=f"no key {missing}"):
            get_actor_critic_arch(arch)
    with pytest.raises(PolicyError, match="unknown keys"):
        get_actor_critic_arch({"pi": [1], "vf": [1]})
