"""The conversion of modules to the parts of polyak's policies: encoders to features extractors, heads to layers.

The encoder of a default module becomes the policy's features extractor and its heads the policy's layers, so that
acting, losses and compiled steps are those of any other policy. A module with its own forward passes is called as a
whole.

Shapes: B rows, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from polyak.compat.rllib_face.columns import ENCODER_OUT, Columns
from polyak.compat.rllib_face.models.encoders import MLPEncoder
from polyak.compat.rllib_face.models.heads import MLPHead
from polyak.compat.rllib_face.models.rl_module import Batch, RLModuleSpec
from polyak.envs.spaces import get_flattened_obs_dim
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import CombinedExtractor, FlattenExtractor


class Layers(nn.Sequential):
    """An encoder that is nothing but layers, as a features extractor: [B, ...] -> [B, F]"""

    features_dim: int


class EncoderFeatures(nn.Module):
    """Any other encoder as a features extractor: [B, ...] -> [B, F]

    Args:
        encoder: maps ``{"obs": [B, ...]}`` to ``{"encoder_out": [B, F]}``.
        features_dim: F.
        turned: images come with the channels first, and the encoder reads them last.
    """

    def __init__(self, encoder: nn.Module, features_dim: int, turned: bool) -> None:
        super().__init__()
        self.encoder, self.features_dim, self.turned = encoder, features_dim, turned

    def forward(self, observations: Tensor) -> Tensor:
        if self.turned:
            observations = observations.movedim(1, -1)
        features: Tensor = self.encoder({Columns.OBS: observations})[ENCODER_OUT]
        return features


def features_of(encoder: Any, latent_dims: tuple[int, ...], turned: bool) -> Any:
    """Returns a features extractor that is this encoder."""
    dim = int(np.prod(latent_dims))
    if type(encoder) is not MLPEncoder or encoder.config.always_check_shapes:
        return EncoderFeatures(encoder, dim, turned)
    layers = Layers(*encoder.net.mlp)
    layers.features_dim = dim
    return layers


def layers_of(head: Any) -> Any:
    """Returns the layers of a head; itself, if it is more than that."""
    return head.net.mlp if type(head) is MLPHead and not head.config.clip_log_std else head


def check_output(module: Any, what: str, values: Any, *shapes: tuple[int, ...]) -> None:
    """Check that an output of a program's own module is a tensor of one of these shapes.

    Raises:
        PolicyError: it is no tensor, or of another shape, which would be broadcast or misread.
    """
    if isinstance(values, Tensor) and tuple(values.shape) in shapes:
        return
    found = f"the shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    wanted = " or ".join(map(str, shapes))
    raise PolicyError(f"{type(module).__name__}: {what} must have the shape {wanted}, got {found}.")


def seen_by(space: spaces.Space, turned: bool) -> spaces.Space:
    """Returns the space that encoders read, by the policy's: images as the environment has them, choices one-hot, in
    parts of a Dict as well."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: seen_by(part, False) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Box):
        if not space.shape:
            return spaces.Box(space.low.reshape(1), space.high.reshape(1), dtype=space.low.dtype.type)
        if not turned:
            return space
        low, high = (np.moveaxis(bound, 0, -1) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=low.dtype.type)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return spaces.Box(0.0, 1.0, (get_flattened_obs_dim(space),), np.float32)
    return space


def built(
    module_class: Any,
    catalog_class: Any,
    model_config: Any,
    turned: bool,
    observation_space: spaces.Space,
    action_space: spaces.Space,
) -> Any:
    """Builds a policy's module.

    Args:
        module_class: class of the module.
        catalog_class: class that builds its default parts; ``None``: it needs none, or has its own.
        model_config: its options.
        turned: the policy sees images with the channels first where the environment has them last.
        observation_space: the policy's observation space.
        action_space: the policy's action space.
    """
    seen = seen_by(observation_space, turned)
    spec = RLModuleSpec(module_class, seen, action_space, model_config=model_config, catalog_class=catalog_class)
    return spec.build()


def read_by(policy: Any, turned: bool, observations: Any) -> Any:
    """Converts raw observations [B, ...] of a policy, or of one of its networks, to those of its module; ``turned``:
    see :func:`built`."""
    read: Any = policy.preprocess(observations)
    return read.movedim(1, -1) if turned else read


def said_by(module: Any, batch: Batch, deterministic: bool, explored: int) -> tuple[str, Batch, Any]:
    """Runs the forward pass by which a module acts; returns its name, its outputs, and the method that returns the
    class of distributions. ``explored``: environment steps so far."""
    if deterministic:
        return "forward_inference", module.forward_inference(batch), module.get_inference_action_dist_cls
    outputs = module.forward_exploration(batch, t=explored)
    return "forward_exploration", outputs, module.get_exploration_action_dist_cls


class AsItStands(nn.Module):
    """Makes a features extractor without a catalog: of the parts of a Dict, or of one vector.

    It is a class of modules, so that files can hold its name.
    """

    def __new__(cls, observation_space: spaces.Space) -> Any:
        if isinstance(observation_space, spaces.Dict):
            return CombinedExtractor(observation_space)
        return FlattenExtractor(observation_space)


class CatalogFeatures(EncoderFeatures):
    """The encoder of a catalog as a features extractor, for networks whose other layers are polyak's.

    Args:
        observation_space: the policy's observation space.
        catalog_class: the class whose ``build_encoder`` makes it.
        model_config: its options.
        turned: see :func:`built`.
    """

    def __init__(
        self, observation_space: spaces.Space, catalog_class: Any, model_config: Mapping[str, Any], turned: bool
    ) -> None:
        options = {**model_config, "use_lstm": False}
        catalog = catalog_class(seen_by(observation_space, turned), None, options)
        super().__init__(catalog.build_encoder("torch"), int(np.prod(catalog.latent_dims)), turned)
