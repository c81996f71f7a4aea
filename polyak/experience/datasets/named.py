"""Arrays by the names that people give them, as episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyak.arrays import mapped
from polyak.experience.batch import ArrayObs
from polyak.experience.datasets.episodes import DatasetError, Parts, RecordedData, assemble, flags
from polyak.warning import warn_user

NAMES = {
    "observations": "observations observation obs states state s",
    "actions": "actions action acts act a",
    "rewards": "rewards reward rew r",
    "next_observations": "next_observations next_observation next_obs next_states next_state s_next s'",
    "terminations": "terminations termination terminated terminals terminal",
    "dones": "dones done d",
    "truncations": "truncations truncation truncated timeouts timeout time_limits",
    "episodes": "episodes episode episode_id episode_ids traj trajectory",
    "steps": "steps step timestep timesteps t",
}
"""The accepted names for each array."""
MEANING = {name: meaning for meaning, names in NAMES.items() for name in names.split()}
_NEEDED = ("observations", "actions", "rewards")


def by_meaning(arrays: Mapping[str, Any], source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns arrays by their meaning, and the arrays with other names.

    Args:
        arrays: arrays by their names in ``source``.
        source: the name of the source in messages.

    Raises:
        DatasetError: two have the same meaning, or one is missing.
    """
    known: dict[str, Any] = {}
    for name, array in arrays.items():
        meaning = MEANING.get(name.lower())
        if meaning in known:
            called = [other for other in arrays if MEANING.get(other.lower()) == meaning]
            raise DatasetError(f"{source} has {meaning} twice, as {called}: leave one out.")
        if meaning is not None:
            known[meaning] = array
    if missing := [name for name in _NEEDED if name not in known]:
        raise DatasetError(
            f"{source} has no {missing[0]}: it has {sorted(arrays)}. They may be called {NAMES[missing[0]].split()}; "
            f"of a table, say which columns they are: Dataset.load(path, {missing[0]}=[...])."
        )
    if not known.keys() & {"terminations", "dones", "episodes"}:
        may = " ".join(NAMES[name] for name in ("terminations", "dones", "episodes")).split()
        raise DatasetError(f"{source} does not say where episodes end: it has {sorted(arrays)}, none of {may}.")
    return known, {name: array for name, array in arrays.items() if name.lower() not in MEANING}


def recording_of(arrays: Mapping[str, Any], source: str) -> RecordedData:
    """Arrays [N, ...] by any of their names; those of other names become columns, if they are numbers.

    Raises:
        DatasetError: as :func:`by_meaning` and :func:`~polyak.experience.datasets.episodes.assemble`; or steps of an
            episode are there twice, or missing.
    """
    known, others = by_meaning(arrays, source)
    columns = numeric(others, len(known["rewards"]), source)
    order = last = None
    if "episodes" in known:
        order = _in_order(known)
        episode = np.asarray(known["episodes"])[order]
        last = order[np.append(episode[1:] != episode[:-1], True)]
    known["truncations"], known["terminations"] = _ends(known, source, last)
    if order is not None:
        _check_over(known, order)
        known["truncations"][last] |= ~known["terminations"][last]
        known = {name: mapped(lambda array: np.asarray(array)[order], array) for name, array in known.items()}
        columns = {name: array[order] for name, array in columns.items()}
    recording = assemble(
        known["observations"],
        known["actions"],
        known["rewards"],
        known["terminations"],
        known["truncations"],
        known.get("next_observations"),
        columns,
    )
    if order is None:
        return recording
    return recording._replace(rows=order if recording.rows is None else order[recording.rows])


def _ends(known: dict[str, Any], source: str, last: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Truncations and terminations [N]; where a step is called both, it is terminal.

    Args:
        last: the rows that are the last ones of their episodes, as far as those are numbered.
    """
    truncated = known.get("truncations")
    if "terminations" in known:
        ended = flags("terminations", known["terminations"])
        if truncated is None and "dones" in known:
            truncated = flags("dones", known["dones"])
        cut = np.zeros(len(ended), bool) if truncated is None else flags("truncations", truncated)
        return cut & ~ended if len(cut) == len(ended) else cut, ended
    done = flags("dones", known["dones"]) if "dones" in known else np.zeros(len(known["rewards"]), bool)
    if "dones" not in known:
        done[last] = True
    if truncated is None:
        warn_user(
            f"{source} does not distinguish time limits from terminal states: every end is taken for a terminal state. "
            "Add 'truncations', and rewards after time limits will count.",
        )
        return np.zeros(len(done), bool), done
    cut = flags("truncations", truncated)
    return cut, done & ~cut if len(cut) == len(done) else done


def _in_order(known: Mapping[str, Any]) -> np.ndarray:
    """[N] rows by episode and step.

    Raises:
        DatasetError: a step is there twice, or follows none.
    """
    episode = np.asarray(known["episodes"])
    step = np.asarray(known["steps"]) if "steps" in known else None
    if episode.ndim != 1 or (step is not None and step.shape != episode.shape):
        raise DatasetError(f"episodes has shape {episode.shape}: it must be [N], and steps, if there are any, too.")
    order = np.argsort(episode, kind="stable") if step is None else np.lexsort((step, episode))
    before, after = _pairs(episode, order)
    if step is not None:
        if (twice := np.flatnonzero(step[after] == step[before])).size:
            row, other = after[twice[0]], before[twice[0]]
            raise DatasetError(f"row {row}: step {step[row]} of episode {episode[row]} is in row {other}, too.")
        gaps = np.flatnonzero(step[after] != step[before] + 1)
        if gaps.size and "next_observations" not in known:
            row, other = after[gaps[0]], before[gaps[0]]
            raise DatasetError(
                f"row {row}: step {step[row]} of episode {episode[row]} follows step {step[other]} (row {other}). Add "
                "the steps between them, or next_observations."
            )
    return order


def _pairs(episode: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two steps of an episode, one after the other."""
    follows = np.flatnonzero(episode[order][1:] == episode[order][:-1])
    return order[follows], order[follows + 1]


def _check_over(known: Mapping[str, Any], order: np.ndarray) -> None:
    """Refuse steps after the end of their episode."""
    episode = np.asarray(known["episodes"])
    before, after = _pairs(episode, order)
    over = np.flatnonzero((known["terminations"] | known["truncations"])[before])
    if over.size:
        row, other = after[over[0]], before[over[0]]
        raise DatasetError(f"row {row}: episode {episode[row]} continues after its end in row {other}.")


def successors(parts: Parts) -> tuple[ArrayObs, ArrayObs]:
    """Returns the observation and the successor observation of each step: [N, ...] each."""
    numbers = np.repeat(np.arange(len(parts.ends)), np.diff(parts.ends, prepend=0))
    at = np.arange(len(parts.actions)) + numbers
    return (
        mapped(lambda array: array[at], parts.observations),
        mapped(lambda array: array[at + 1], parts.observations),
    )


def numeric(arrays: Mapping[str, Any], length: int, source: str) -> dict[str, np.ndarray]:
    """Returns the columns that datasets can hold: finite numbers, one row for each of ``length`` steps.

    Others are left out, with a warning.
    """
    fit = {
        name: array
        for name, array in arrays.items()
        if getattr(array, "ndim", 0)
        and array.dtype.kind in "biuf"
        and len(array) == length
        and np.isfinite(array).all()
    }
    if left := sorted(arrays.keys() - fit.keys()):
        warn_user(f"{source}: {left} are left out, since they are not finite numbers of each step.")
    return fit


def grouped(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of names such as ``"observations/left"`` as dicts of those before the first slash."""
    groups: dict[str, Any] = {}
    for name, array in arrays.items():
        group, _, key = name.partition("/")
        if key:
            groups.setdefault(group, {})[key] = array
        else:
            groups[name] = array
    return groups
