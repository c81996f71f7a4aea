"""Preprocessing of observations, and features extractors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import TypeIs

from polyak.envs.spaces import check_for_nested_spaces, get_flattened_obs_dim, is_image_space
from polyak.nn.errors import PolicyError

Obs = Tensor | dict[str, Tensor]
"""A batch of observations: [B, ...], or one such tensor for each key of a Dict space."""

Preprocess = Callable[[Any], Any]

if TYPE_CHECKING:

    class Extractor(nn.Module):
        """A module that computes features; ``features_dim`` is their number."""

        @property
        def features_dim(self) -> int: ...

else:
    Extractor = nn.Module

ExtractorClass = Callable[..., nn.Module]
"""A class of modules with an attribute ``features_dim``, called with the observation space and its own kwargs."""


# --- preprocessing --------------------------------------------------------------------------------------------------


def preprocess_obs(obs: Obs, observation_space: spaces.Space, normalize_images: bool = True) -> Obs:
    """Convert raw observations to network inputs: float32, images in [0, 1], indices as one-hot vectors.

    Args:
        obs: [B, ...] as the environment gives them, or a dict of these.
        observation_space: the space that they come from.
        normalize_images: divide the images (uint8, three dimensions, bounds 0 and 255) by 255.

    Returns:
        Box: [B, ...], or [B, 1] of shape (); Discrete: [B, n]; MultiDiscrete: [B, sum of nvec]; MultiBinary: [B, ...];
        Dict: a dict.

    Raises:
        NotImplementedError: another space, or a Dict inside a Dict.
    """
    return make_preprocess(observation_space, normalize_images)(obs)


def make_preprocess(observation_space: spaces.Space, normalize_images: bool = True) -> Preprocess:
    """:func:`preprocess_obs` specialised to a space: fast to call, and picklable.

    Raises:
        NotImplementedError: an unsupported space, or a Dict inside a Dict.
    """
    if isinstance(observation_space, spaces.Dict):
        check_for_nested_spaces(observation_space)
        parts = {key: make_preprocess(space, normalize_images) for key, space in observation_space.spaces.items()}
        return partial(_each_key, parts=parts)
    if isinstance(observation_space, spaces.Box):
        if not observation_space.shape:
            return to_column
        return _image_to_unit if normalize_images and is_image_space(observation_space) else to_float
    if isinstance(observation_space, spaces.Discrete):
        return partial(one_hot, sizes=(int(observation_space.n),), starts=(int(observation_space.start),))
    if isinstance(observation_space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in observation_space.nvec.flatten())
        return partial(one_hot, sizes=sizes, starts=tuple(int(s) for s in observation_space.start.flatten()))
    if isinstance(observation_space, spaces.MultiBinary):
        return to_float
    raise NotImplementedError(
        f"The observation space {observation_space} is not supported. "
        "Use Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these."
    )


def to_float(obs: Tensor) -> Tensor:
    """Preprocessing of observations that are numbers already."""
    return obs.float()


def standardized_images(images: Tensor) -> Tensor:
    """Standardises each image by its own mean and standard deviation: [B, C, H, W] -> [B, C, H, W]

    All channels count as one image, stacked frames too. The deviation is taken as 1 / sqrt(C H W) at least, so that an
    image of a single colour becomes 0.
    """
    pixels = images.flatten(1)
    centred = pixels - pixels.mean(1, keepdim=True)
    variance = (centred * centred).mean(1, keepdim=True).clamp_min(1 / pixels.shape[1])
    return (centred / variance.sqrt()).reshape(images.shape)


def to_column(obs: Tensor) -> Tensor:
    """[B] numbers of a Box of shape () -> [B, 1]"""
    return obs.float().reshape(-1, 1)


def _image_to_unit(obs: Tensor) -> Tensor:
    return obs.float() / 255.0


def one_hot(obs: Tensor, sizes: tuple[int, ...], starts: tuple[int, ...]) -> Tensor:
    """[B], [B, 1] or [B, ...] indices -> [B, sum(sizes)]."""
    indices = obs.long().reshape(obs.shape[0], len(sizes))
    columns = []
    for i, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        chosen = indices[:, i : i + 1] - start if start else indices[:, i : i + 1]
        # without F.one_hot, which reads values to check them
        columns.append(torch.zeros(obs.shape[0], size, device=obs.device).scatter(1, chosen, 1.0))
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)


def _each_key(obs: dict[str, Tensor], parts: dict[str, Preprocess]) -> dict[str, Tensor]:
    return {key: preprocess(obs[key]) for key, preprocess in parts.items()}


# --- features extractors --------------------------------------------------------------------------------------------


class BaseFeaturesExtractor(Extractor):
    """Base class of features extractors: preprocessed observations -> [B, features_dim].

    A subclass may set ``self._features_dim`` after it has built its layers.

    Args:
        observation_space: the space of the observations.
        features_dim: how many features it makes.

    Raises:
        PolicyError: ``features_dim`` is negative.
    """

    def __init__(self, observation_space: spaces.Space, features_dim: int = 0) -> None:
        super().__init__()
        if features_dim < 0:
            raise PolicyError(f"features_dim must be positive, got {features_dim}.")
        self._observation_space = observation_space
        self._features_dim = features_dim

    @property
    def features_dim(self) -> int:
        """Number of features.

        Raises:
            PolicyError: it was never set.
        """
        if self._features_dim < 1:
            raise PolicyError(
                f"{type(self).__name__} has features_dim={self._features_dim}: call "
                "super().__init__(observation_space, features_dim=n), or set self._features_dim in __init__."
            )
        return int(self._features_dim)


class FlattenExtractor(BaseFeaturesExtractor):
    """The observation itself, as a vector: [B, ...] -> [B, features_dim]."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space, get_flattened_obs_dim(observation_space))
        self.flatten = nn.Flatten()

    def forward(self, observations: Tensor) -> Tensor:
        return self.flatten(observations)


class NatureCNN(BaseFeaturesExtractor):
    """The three convolutions of Mnih et al. 2015 (Nature 518, "Methods"): [B, C, H, W] -> [B, features_dim].

    Args:
        observation_space: images, channels first, 36 x 36 or larger.
        features_dim: width of the linear layer at the end; ``None``: there is none, and the features are the pixels of
            the last convolution.
        normalized_image: the images are not uint8 in [0, 255] (floats in [0, 1], say): do not check that.
        standardize: subtract from each image its mean, and divide by its standard deviation: see
            :func:`standardized_images`. Brightness and contrast do not count then.

    Raises:
        PolicyError: not an image, or too small.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        features_dim: int | None = 512,
        normalized_image: bool = False,
        *,
        standardize: bool = False,
    ) -> None:
        super().__init__(observation_space, features_dim or 0)
        _check_image(observation_space, normalized_image)
        self.standardize = standardize
        channels, height, width = observation_space.shape
        self.cnn = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        flat = 64 * _nature_size(height) * _nature_size(width)
        if features_dim is None:
            self._features_dim, self.linear = flat, nn.Sequential()
        else:
            self.linear = nn.Sequential(nn.Linear(flat, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        if self.standardize:
            observations = standardized_images(observations)
        if observations.device.type == "cpu":  # convolutions there are fastest with the channels innermost
            observations = observations.contiguous(memory_format=torch.channels_last)
        return self.linear(self.cnn(observations))


class CombinedExtractor(BaseFeaturesExtractor):
    """Concatenates the features of one extractor for each key of a Dict space: :class:`NatureCNN` for images, the
    flattened entry for the rest.

    Args:
        observation_space: the Dict.
        cnn_output_dim: features of each image.
        normalized_image: see :class:`NatureCNN`.
        standardize: see :class:`NatureCNN`; all images.

    Raises:
        PolicyError: not a Dict, an empty one, or ``standardize`` where there is no image.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        *,
        standardize: bool = False,
    ) -> None:
        super().__init__(observation_space)
        if not isinstance(observation_space, spaces.Dict) or not observation_space.spaces:
            raise PolicyError(
                f"CombinedExtractor reads a Dict observation space with at least one key, got {observation_space}."
            )
        self.extractors = nn.ModuleDict()
        for key, space in observation_space.spaces.items():
            if isinstance(space, spaces.Box) and is_image_space(space, normalized_image=normalized_image):
                self.extractors[key] = NatureCNN(space, cnn_output_dim, normalized_image, standardize=standardize)
                self._features_dim += cnn_output_dim
            else:
                self.extractors[key] = nn.Flatten()
                self._features_dim += get_flattened_obs_dim(space)
        if standardize and not any(isinstance(extractor, NatureCNN) for extractor in self.extractors.values()):
            raise PolicyError(f"standardize=True, but no entry of {observation_space} is an image. Leave it out.")

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat([extractor(observations[key]) for key, extractor in self.extractors.items()], dim=1)


def _nature_size(size: int) -> int:
    """Side of an image after the three unpadded convolutions."""
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        size = (size - kernel) // stride + 1
    return size


def stacked_hint(space: spaces.Space) -> str:
    """The fix for several images in one observation; empty for other observations."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 4:
        return ""
    return (
        f"These are {space.shape[0]} images, as FrameStackObservation gives them; a CNN reads one, with more "
        f"channels: use VecFrameStack(make_vec_env(...), n_stack={space.shape[0]}) in place of that wrapper."
    )


def _check_image(space: spaces.Space, normalized_image: bool) -> None:
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        raise PolicyError(
            f"NatureCNN reads images, a Box of three dimensions, but the observation space is {space}. "
            + (stacked_hint(space) or "Use 'MlpPolicy' for vectors and 'MultiInputPolicy' for Dict spaces.")
        )
    if not is_image_space(space, normalized_image=normalized_image):
        raise PolicyError(
            f"NatureCNN reads uint8 images between 0 and 255, but the observation space is {space} of dtype "
            f"{space.dtype}. For images already normalised, pass policy_kwargs=dict(normalize_images=False); "
            "otherwise let the environment return uint8."
        )
    if min(space.shape[1:]) < 36:
        raise PolicyError(
            f"NatureCNN reads images (C, H, W) of at least 36 x 36 with the channels first, got shape {space.shape}. "
            "Wrap the environment with VecTransposeImage if its channels come last; else enlarge the images, use "
            "'MlpPolicy', or pass your own features_extractor_class."
        )


# --- choice ---------------------------------------------------------------------------------------------------------


def default_extractor(observation_space: spaces.Space, normalize_images: bool = True) -> ExtractorClass:
    """The features extractor that suits a space: key by key for a Dict, a CNN for images, else a flat vector.

    Args:
        observation_space: the space.
        normalize_images: whether images are uint8; without it, any Box of three dimensions is an image.
    """
    if isinstance(observation_space, spaces.Dict):
        return CombinedExtractor
    image = is_image_space(observation_space, normalized_image=not normalize_images)
    return NatureCNN if image else FlattenExtractor


def make_extractor(
    observation_space: spaces.Space,
    extractor_class: ExtractorClass,
    extractor_kwargs: Mapping[str, Any] | None,
    normalize_images: bool,
) -> Extractor:
    """Build a features extractor; networks for images get an argument if images are not uint8.

    Raises:
        PolicyError: it has no ``features_dim``.
    """
    kwargs = dict(extractor_kwargs or {})
    if not normalize_images and _is_subclass(extractor_class, (NatureCNN, CombinedExtractor)):
        kwargs.setdefault("normalized_image", True)
    extractor = extractor_class(observation_space, **kwargs)
    if not _is_extractor(extractor):
        raise PolicyError(
            f"features_extractor_class={extractor_class!r} must make a torch module with an integer features_dim: "
            "subclass BaseFeaturesExtractor."
        )
    return extractor


def _is_extractor(made: object) -> TypeIs[Extractor]:
    return isinstance(made, nn.Module) and isinstance(getattr(made, "features_dim", None), Integral)


def _is_subclass(candidate: Any, classes: tuple[type, ...]) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, classes)
