"""Running statistics that wrappers of environments hold, such as Gymnasium's ``NormalizeObservation``.

They are found by structure: an attribute of a wrapper with a mean, a variance, a count and an ``update``. The
statistics of ``VecNormalize`` are excluded: a model holds these, see :mod:`polyak.envs.normalisation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from polyak.envs.wrappers.running import RunningMeanStd

Found = dict[str, dict[str, Any]]
"""``"NormalizeObservation.obs_rms"`` -> mean and var (arrays), count, and whether several environments share it. As
read from an environment, also whether it is updated further; ``None``: the wrapper has no ``update_running_mean``.
"""


def found_in(env: Any, shared: bool = False) -> Found:
    """Returns copies of the statistics in an environment and its wrappers, or in a vector of them and its wrappers.

    Args:
        env: an object whose wrapped object is ``env.env``.
        shared: the value of their entry ``"shared"``: whether they are of all environments together.
    """
    return {
        key: {
            **{name: np.array(vars(statistics)[name]) for name in ("mean", "var")},
            "count": float(statistics.count),
            "shared": shared,
            "updates": getattr(layer, _SWITCH, None),
        }
        for key, layer, statistics in _held(env)
    }


def put_into(env: Any, found: Found) -> None:
    """Give an environment the statistics of :func:`found_in` that it has wrappers for."""
    for key, layer, statistics in _held(env):
        if (new := found.get(key)) is None:
            continue
        for name in ("mean", "var"):
            array = isinstance(vars(statistics)[name], np.ndarray)
            setattr(statistics, name, np.array(new[name]) if array else float(new[name]))
        statistics.count = new["count"]
        if new.get("updates") is not None and hasattr(layer, _SWITCH):
            setattr(layer, _SWITCH, new["updates"])


def _held(env: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields each of the statistics with its name and its wrapper, the outermost first."""
    met: dict[str, int] = {}
    layer = env
    while layer is not None:
        for name, value in vars(layer).items():
            if _are_statistics(value):
                key = f"{type(layer).__name__}.{name}"
                met[key] = met.get(key, 0) + 1
                yield (key if met[key] == 1 else f"{key}/{met[key]}"), layer, value
        layer = layer.env if isinstance(layer, gym.Wrapper | gym.vector.VectorWrapper) else None


_SWITCH = "update_running_mean"


def _are_statistics(value: Any) -> bool:
    parts = getattr(value, "__dict__", {})
    return (
        {"mean", "var", "count"} <= parts.keys()
        and callable(getattr(value, "update", None))
        and np.shape(parts["mean"]) == np.shape(parts["var"])
        and all(np.asarray(parts[name]).dtype.kind == "f" for name in ("mean", "var"))
        and np.asarray(parts["count"]).dtype.kind in "iuf"
    )


# -- of several environments -------------------------------------------------------------------------------------------


def have_data(found: list[Found]) -> bool:
    """Whether any has seen a sample."""
    return any(one["count"] >= 1 for each in found for one in each.values())


def for_envs(found: list[Found], number: int) -> list[Found]:
    """Returns the statistics for ``number`` environments: one's own for each, or else those of all together."""
    return found if len(found) == number else [merged(found)] * number


def merged(found: list[Found]) -> Found:
    """Returns the statistics of all samples of several environments together."""
    together: Found = {}
    for key, first in (found[0] if found else {}).items():
        parts = [first] if first["shared"] else [each[key] for each in found if key in each]
        whole = RunningMeanStd(0.0, first["mean"].shape)
        for part in parts:
            whole.update_from_moments(part["mean"], part["var"], part["count"])
        together[key] = first if len(parts) == 1 else {**first, **whole.state_dict()}
    return together


def obstacles(given: Found, found: Found) -> dict[str, str]:
    """Why an environment with the statistics ``found`` does not take some that are ``given``: name -> reason.

    Those of single numbers, as of rewards, may be missing.
    """
    why = {}
    for key, one in given.items():
        if (own := found.get(key)) is None:
            if one["mean"].ndim:
                why[key] = MISSING
        elif own["mean"].shape != one["mean"].shape:
            why[key] = f"its have the shape {own['mean'].shape}, not {one['mean'].shape}"
        elif own["count"] >= 1 and not all(np.array_equal(own[name], one[name]) for name in ("mean", "var", "count")):
            why[key] = OWN
    return why


MISSING, OWN = "it has none", "it has seen data of its own"


def checked(found: Any) -> list[Found]:
    """Returns the content of a file, after checking that it is a list of results of :func:`found_in`.

    Raises:
        ValueError: it is not such a list.
    """
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("the statistics of wrappers are no list with a dict for each environment: it is damaged.")
    for key, one in ((key, one) for each in found for key, one in each.items()):
        values: Any = one if isinstance(one, Mapping) else {}
        mean, var, count = (values.get(name) for name in ("mean", "var", "count"))
        if not (
            key.replace(".", "").replace("/", "").isidentifier()  # a name is printed
            and all(
                isinstance(part, np.ndarray) and part.dtype.kind == "f" and np.isfinite(part).all()
                for part in (mean, var)
            )
            and mean.shape == var.shape
            and (var >= 0).all()
            and isinstance(count, int | float)
            and 0 <= count < np.inf
            and isinstance(values.get("shared"), bool)
        ):
            raise ValueError(f"the statistics {key!r:.80} of a wrapper are {one!r:.80}: it is damaged.")
    if any(_shapes(each) != _shapes(found[0]) for each in found):
        raise ValueError("the statistics of wrappers differ from environment to environment: it is damaged.")
    kept = [{key: {name: one[name] for name in KEPT} for key, one in each.items()} for each in found]
    return kept if any(kept) else []


def _shapes(found: Found) -> dict[str, tuple[int, ...]]:
    return {key: one["mean"].shape for key, one in found.items()}


KEPT = ("mean", "var", "count", "shared")
"""The entries that a file holds for each of the statistics."""
