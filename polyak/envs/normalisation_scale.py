"""The scale in which a model takes observations.

``predict`` takes them as the model's own environment returns them: normalised, if there is a ``VecNormalize`` around
it. Code that calls a model with other observations converts them first: :func:`shown_to` takes those of an unwrapped
environment, :func:`as_seen_in` those that some environment has just returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrappers.layers import above_normalisation
from polyak.envs.wrappers.normalize import unwrap_vec_normalize


def shown_to(model: Any, observations: Any) -> Any:
    """Converts observations to the inputs of ``model.predict``.

    Args:
        model: anything with ``predict``. A model with a method ``as_shown`` converts observations by it; a policy, or
            any other, takes them as they are.
        observations: one or a batch, as they were before ``VecNormalize``.

    Raises:
        ValueError: a wrapper around the ``VecNormalize`` of the model's environment changes observations, and its
            result is unknown here.
    """
    as_shown = getattr(type(model), "as_shown", None)
    return observations if as_shown is None else as_shown(model, observations)


def as_seen_in(env: VecEnv, model: Any) -> Callable[[Any], Any]:
    """Returns a function from observations that ``env`` has just returned to those that ``model.predict`` takes.

    A model without an environment normalises by the statistics of its file: it gets observations as they were before
    the ``VecNormalize`` of ``env``. Any other gets them as they are.

    Raises:
        ValueError: it cannot, since a wrapper around that ``VecNormalize`` changes them.
    """
    normalizer = unwrap_vec_normalize(env)
    if normalizer is None or not normalizer.norm_obs or not _by_itself(model):
        return lambda observations: observations
    if above := above_normalisation(env).observations:
        raise ValueError(
            f"the model normalises observations by the statistics of its file, and env would do so first: {above[0]} "
            "stands around its VecNormalize. Load the model with env=..., or pass env without VecNormalize."
        )
    return lambda observations: normalizer.get_original_obs()


def _by_itself(model: Any) -> bool:
    normalisation = getattr(model, "normalisation", None)
    return normalisation is not None and bool(normalisation.is_by_itself)
