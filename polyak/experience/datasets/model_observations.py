"""Observations as models see them: the parts of composed ones by name, images with their channels first."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed, is_nested, parts_by_name
from polyak.envs.spaces import is_image_space, is_image_space_channels_first, transpose_image
from polyak.experience.batch import ArrayObs
from polyak.experience.datasets.episodes import arrays_of


def named_space(space: spaces.Space) -> spaces.Space:
    """Returns a Tuple or nested space as one Dict of its parts; any other as it is.

    Raises:
        ValueError: two parts would have the same name.
    """
    if not is_composed(space) or (isinstance(space, spaces.Dict) and not is_nested(space)):
        return space
    return spaces.Dict({name: part.space for name, part in parts_by_name(space).items()})


def channels_first(observations: ArrayObs, space: spaces.Space) -> tuple[ArrayObs, spaces.Space]:
    """Returns observations [B, ...] and their space with every image (H, W, C) transposed to (C, H, W), as a view."""
    if isinstance(space, spaces.Dict) != isinstance(observations, dict):  # which is refused
        return observations, space
    pairs = {key: _turned(array, _member(space, key)) for key, array in arrays_of(observations).items()}
    if not isinstance(space, spaces.Dict) or not isinstance(observations, dict):
        return pairs.get(None, (observations, space))
    known = {key: pairs[key][1] if key in pairs else part for key, part in space.spaces.items()}
    return {key: pairs[key][0] for key in observations}, spaces.Dict(known)


def _member(space: spaces.Space, key: str | None) -> spaces.Space | None:
    if isinstance(space, spaces.Dict):
        return None if key is None else space.spaces.get(key)
    return space if key is None else None


def _turned(array: np.ndarray, space: Any) -> tuple[np.ndarray, Any]:
    if not is_image_space(space) or is_image_space_channels_first(space):
        return array, space
    height, width, channels = space.shape
    turned = spaces.Box(0, 255, (channels, height, width), np.uint8)
    if array.shape[1:] == turned.shape:  # they were turned before
        return array, turned
    return transpose_image(array), turned
