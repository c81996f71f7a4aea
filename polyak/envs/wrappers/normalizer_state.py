"""Settings and statistics of a normaliser, as they stand in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from polyak import formats
from polyak.envs.reading import npz, plain_json
from polyak.envs.reading.limits import check_regular

FORMAT = "polyak.VecNormalize/1"
_SWITCHES = ("training", "norm_obs", "norm_reward")
_NUMBERS = ("clip_obs", "clip_reward", "gamma", "epsilon")
_LATER = "center_reward"
SETTINGS = (*_SWITCHES, *_NUMBERS, "norm_obs_keys", _LATER)
"""Arguments of ``VecNormalize``; the last is False where a file is older than it."""
_NEEDED = {*SETTINGS, "ret_rms/mean", "ret_rms/var", "ret_rms/count", "returns"} - {_LATER}


def read_state(path: Path, trust: bool = False) -> dict[str, Any]:
    """Reads a result of ``VecNormalize.state_dict()`` from a file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: another kind of file, or a damaged one.
    """
    what = f"path={str(path)!r}"
    check_regular(path, what)
    with path.open("rb") as file:
        start = file.read(1)
        if start in formats.STATISTICS:
            file.seek(0)
            found: dict[str, Any] = resolve_name(formats.STATISTICS[start])(file, trust=trust)
            return found
    foreign = f"{what} is not a file written by VecNormalize.save(), or it is damaged"
    if start != b"P":  # the first byte of a zip
        raise ValueError(f"{foreign}.")
    arrays = npz.read(path, what)
    header = arrays.pop("header", None)
    if header is None or header.dtype.kind != "U":
        raise ValueError(f"{foreign}: it has no header.")
    info = plain_json.parse_object(str(header), f"{what}: its header")
    if info.get("format") != FORMAT:
        raise ValueError(f"{what} has format {info.get('format')!r:.80}, this version reads {FORMAT!r}.")
    settings = info.get("state")
    if not isinstance(settings, dict):
        raise ValueError(f"{foreign}: it has no settings.")
    state = settings | {name.removeprefix("state/"): value for name, value in arrays.items() if name[:6] == "state/"}
    try:
        check_state(state)
    except ValueError as error:
        raise ValueError(f"{foreign}: {error}") from error
    return state


def check_state(state: Mapping[str, Any]) -> None:
    """Check that a state has the form of ``VecNormalize.state_dict()``.

    Raises:
        ValueError: a setting or a statistic is missing, or of another kind.
    """
    if missing := sorted(_NEEDED - state.keys()):
        raise ValueError(f"it lacks {missing}.")
    counts = [name for name in state if name.endswith("/count")]
    for name in (*_SWITCHES, _LATER):
        if not isinstance(value := state.get(name, False), bool | np.bool_):
            raise ValueError(f"its {name} is {value!r:.80}, neither true nor false.")
    for name in (*_NUMBERS, *counts):
        if not _is_number(state[name]):
            raise ValueError(f"its {name} is {state[name]!r:.80}, not a number of at least 0.")
    keys = state["norm_obs_keys"]
    if keys is not None and not (isinstance(keys, list | tuple) and all(isinstance(key, str) for key in keys)):
        raise ValueError(f"its norm_obs_keys are {keys!r:.80}.")
    for part in (name.removesuffix("/count") for name in counts):
        mean, variance = (np.asarray(state.get(f"{part}/{what}", np.nan)) for what in ("mean", "var"))
        if not (_is_finite(mean) and _is_finite(variance) and mean.shape == variance.shape and (variance >= 0).all()):
            raise ValueError(f"its {part} has a mean or a variance that is none.")


def _is_number(value: Any) -> bool:
    """Whether it is a real number of at least 0; infinity is one, which clips nothing."""
    value = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value) and float(value) >= 0


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
