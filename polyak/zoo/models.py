"""Building a model from settings."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from polyak.zoo.environments import normalized
from polyak.zoo.registry import parameter_names
from polyak.zoo.settings import Settings
from polyak.zoo.sizes import small_networks

if TYPE_CHECKING:
    from gymnasium import spaces

    from polyak.envs import VecEnv
    from polyak.experience import Dataset


_SMALLEST_SIDE = 36
"""Smallest side of images for a CnnPolicy, in pixels."""


def fit_policy(algorithm: type[Any], settings: Settings, observation_space: spaces.Space) -> str:
    """Choose the policy by the observation space if the settings leave it open.

    MultiInputPolicy for a Dict (Tuples have been converted to one), CnnPolicy for images of at least 36 x 36 pixels
    that are not normalised, and otherwise the policy of the settings. Changes ``settings.policy`` and ``settings.raw``
    in place and returns a sentence about it, which is empty without a change.
    """
    own_reader = "features_extractor_class" in settings.arguments.get("policy_kwargs", {})
    usual = isinstance(settings.policy, str) and settings.policy.startswith("Mlp")
    if not settings.policy_is_open or not usual or own_reader or "policy" not in parameter_names(algorithm):
        return ""
    kind = _kind_of_policy(settings, observation_space)
    if kind == "Mlp":
        return ""
    before = settings.policy
    settings.policy = settings.raw["policy"] = kind + before.removeprefix("Mlp")
    return (
        f"{settings.policy} instead of {before}, for observations are {'a Dict' if kind == 'MultiInput' else 'images'}."
        " Choose another with --hyperparams policy:NAME."
    )


def _kind_of_policy(settings: Settings, observation_space: spaces.Space) -> str:
    """Prefix of the name of a policy for these observations."""
    from gymnasium.spaces import Dict

    from polyak.envs.spaces import is_image_space

    if isinstance(observation_space, Dict):
        return "MultiInput"
    normalised = settings.normalize is not None and settings.normalize.get("norm_obs", True)
    if is_image_space(observation_space) and not normalised:
        return "Cnn" if sorted(observation_space.shape)[1] >= _SMALLEST_SIDE else "Mlp"  # the least are the channels
    return "Mlp"


def new_model(algorithm: type[Any], settings: Settings, env: VecEnv | Dataset, **common: Any) -> Any:
    """Build an untrained model, with normalised environments and action noise if the settings have them.

    `common` are arguments of the constructor (seed, device, verbose, ...) that the settings may replace.

    Raises ZooError if settings that may have come from others describe huge networks (`sizes`).
    """
    if settings.normalize is not None:
        env = normalized(env, settings)  # type: ignore[arg-type]
    arguments = dict(settings.arguments)
    shape = getattr(env.action_space, "shape", None)
    noise = settings.action_noise(int(shape[-1])) if shape else None
    if noise is not None:
        arguments["action_noise"] = noise
    taken = parameter_names(algorithm)
    if "policy" not in taken:  # a table
        common = {name: value for name, value in common.items() if name in taken}
        return algorithm(env, **{**common, **arguments})
    limit = nullcontext() if settings.is_trusted("policy_kwargs") else small_networks(settings.source)
    with limit:
        return algorithm(settings.policy, env, **{**common, **arguments})
