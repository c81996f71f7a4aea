"""A wrapper that puts the channels of images first, as PyTorch's convolutions require."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.spaces import SpaceError, is_image_space, is_image_space_channels_first, transpose_image
from polyak.envs.vec.vec_env import VecEnv, VecObservationWrapper


class VecTransposeImage(VecObservationWrapper):
    """Transposes images from ``(H, W, C)`` to ``(C, H, W)``; in a Dict those of every key with channels-last images.

    Args:
        venv: the VecEnv to wrap.
        skip: change nothing. For images whose smallest dimension is not that of the channels.

    Raises:
        SpaceError: when there is no image to transpose.
    """

    def __init__(self, venv: VecEnv, skip: bool = False):
        self.skip = skip
        self.image_space_keys: list[str] = []
        space = venv.observation_space
        if skip:
            self.passes_on = ("observations", "rewards")
            super().__init__(venv)
            return
        if isinstance(space, spaces.Dict):
            self.image_space_keys = [key for key, subspace in space.spaces.items() if _is_channels_last(subspace)]
            transposed = {key: self.transpose_space(space[key], key) for key in self.image_space_keys}
            super().__init__(venv, observation_space=spaces.Dict({**space.spaces, **transposed}))
        else:
            super().__init__(venv, observation_space=self.transpose_space(space))

    @staticmethod
    def transpose_space(observation_space: spaces.Space, key: str = "") -> spaces.Box:
        """The space of the transposed images.

        Raises:
            SpaceError: when the space does not hold images, or they are channels-first already.
        """
        name = f"observation space at key {key!r}" if key else "observation space"
        if not is_image_space(observation_space):
            raise SpaceError(
                f"The {name} must be an image (Box of 3 dimensions, uint8, 0 to 255) to be transposed, "
                f"got {observation_space}."
            )
        if is_image_space_channels_first(observation_space):
            raise SpaceError(
                f"The {name} of shape {observation_space.shape} is channels-first already, where (H, W, C) is needed. "
                "Leave VecTransposeImage out, or pass skip=True."
            )
        height, width, channels = observation_space.shape
        return spaces.Box(low=0, high=255, shape=(channels, height, width), dtype=np.uint8)

    @staticmethod
    def transpose_image(image: np.ndarray) -> np.ndarray:
        """Transpose one image ``(H, W, C)`` or a batch ``(B, H, W, C)``; the result is a view."""
        return transpose_image(image)

    def transpose_observations(self, observations: Any) -> Any:
        """Transpose the images of an observation, one or a batch; a dict given is not altered."""
        if self.skip:
            return observations
        if isinstance(observations, dict):
            return {
                key: transpose_image(value) if key in self.image_space_keys else value
                for key, value in observations.items()
            }
        return transpose_image(observations)

    def observation(self, observation: Any) -> Any:
        return self.transpose_observations(observation)


def _is_channels_last(space: spaces.Space) -> bool:
    return is_image_space(space) and not is_image_space_channels_first(space)
