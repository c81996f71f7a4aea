"""Building a model from settings."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from polyak.zoo.environments import normalized
from polyak.zoo.registry import parameter_names
from polyak.zoo.settings import Settings
from polyak.zoo.sizes import small_networks

if TYPE_CHECKING:
    from polyak.data import Dataset
    from polyak.envs import VecEnv


def new_model(algorithm: type[Any], settings: Settings, env: VecEnv | Dataset, **common: Any) -> Any:
    """Build an untrained model: normalised environments and action noise as the settings say.

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
