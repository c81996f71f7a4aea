"""Wrappers around ``VecNormalize``, and whether experience may be stored as it was before normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from polyak.envs.vec.vec_env import VecEnv, VecEnvWrapper, wrappers_of
from polyak.envs.wrappers.normalize import VecNormalize, unwrap_vec_normalize
from polyak.envs.wrappers.transpose import VecTransposeImage


class Above(NamedTuple):
    """Names of the wrappers around the outermost ``VecNormalize`` that may change these, the outermost first."""

    observations: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()


def above_normalisation(env: VecEnv | None) -> Above:
    """Returns the wrappers around the ``VecNormalize`` of ``env`` that change experience; none without a normaliser.

    A wrapper counts unless the class that defines its ``reset`` and ``step_wait`` declares in
    :attr:`~polyak.envs.VecEnvWrapper.passes_on` that it leaves experience unchanged.
    """
    layers = list(wrappers_of(env))
    around = layers[: next((i for i, layer in enumerate(layers) if isinstance(layer, VecNormalize)), 0)]
    return Above(*(tuple(type(la).__name__ for la in around if not _passes_on(la, what)) for what in Above._fields))


def _passes_on(layer: VecEnvWrapper, what: str) -> bool:
    for method in ("reset", "step", "step_wait"):
        owner = next(cls for cls in type(layer).__mro__ if method in vars(cls))
        declares = "passes_on" in vars(layer) or "passes_on" in vars(owner)
        if owner is not VecEnv and not (declares and what in layer.passes_on):
            return False
    return True


def wrapped_beneath(env: VecEnv, names: tuple[str, ...], wrap: Callable[[VecEnv], VecEnv]) -> VecEnv | None:
    """Returns a copy of the layers of ``env`` down to the last of its outermost wrappers that change observations,
    around ``wrap`` of the inner environment; ``None`` if these wrappers are not called ``names``. ``env`` itself is not
    changed."""
    if not names:
        return wrap(env)
    if not isinstance(env, VecEnvWrapper):
        return None
    if not _passes_on(env, "observations"):
        if type(env).__name__ != names[0]:
            return None
        names = names[1:]
    inner = wrapped_beneath(env.venv, names, wrap)
    if inner is None:
        return None
    return env.around(inner)


def turned_images(env: VecEnv | None) -> list[str | None]:
    """Keys of the images that a ``VecTransposeImage`` in ``env`` has made channels-first, ``None`` for an observation
    that is an image. Images that a wrapper around it changes are not counted."""
    found: list[str | None] = []
    layer = env
    while isinstance(layer, VecEnvWrapper):
        if isinstance(layer, VecTransposeImage) and not layer.skip:
            found += layer.image_space_keys or [None]
        elif not isinstance(layer, VecNormalize) and not _passes_on(layer, "observations"):
            break
        layer = layer.venv
    return found + getattr(layer, "turned", [])


def check_one_normaliser(env: VecEnv) -> None:
    """Refuse training environments that are normalised twice: files and replay use the outer statistics alone.

    Raises:
        ValueError: one ``VecNormalize`` wraps another.
    """
    outer = unwrap_vec_normalize(env)
    if outer is not None and unwrap_vec_normalize(outer.venv) is not None:
        raise ValueError(
            f"env has a VecNormalize(norm_obs={outer.norm_obs}, norm_reward={outer.norm_reward}) around another "
            "VecNormalize: what is normalised already would be normalised again. Use a single one, whose norm_obs and "
            "norm_reward say what it normalises."
        )


class PartNormalizer:
    """Normalises either the observations or the rewards of replayed experience.

    Args:
        normalizer: holds the statistics.
        observations: whether observations are normalised.
        rewards: whether rewards are normalised.
    """

    def __init__(self, normalizer: VecNormalize, observations: bool, rewards: bool) -> None:
        self.normalizer, self.observations, self.rewards = normalizer, observations, rewards

    def normalize_obs(self, obs: Any) -> Any:
        """Observations, normalised if these are."""
        return self.normalizer.normalize_obs(obs) if self.observations else obs

    def normalize_reward(self, reward: Any) -> Any:
        """Rewards, normalised if these are."""
        return self.normalizer.normalize_reward(reward) if self.rewards else reward


def replay_normalizer(env: VecEnv) -> VecNormalize | PartNormalizer | None:
    """Returns the normaliser for replayed experience that is stored as it was before ``VecNormalize``; ``None`` if
    there is none."""
    normalizer, above = unwrap_vec_normalize(env), above_normalisation(env)
    if normalizer is None or (above.observations and above.rewards):
        return None
    if not (above.observations or above.rewards):
        return normalizer
    return PartNormalizer(normalizer, not above.observations, not above.rewards)


def frozen(normalizer: Any) -> Any:
    """A copy of a normaliser of :func:`replay_normalizer`, with the current statistics."""
    if isinstance(normalizer, PartNormalizer):
        return PartNormalizer(normalizer.normalizer.detached(), normalizer.observations, normalizer.rewards)
    return None if normalizer is None else normalizer.detached()
