"""What a replay buffer's parts are saved as: numpy arrays and JSON values, nothing that needs pickle.

Keys with a slash belong to an entry of a Dict observation, to an extra column, to the sampler, or to the relabelling.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.data.hindsight.relabel import Relabel
from polyak.data.sampling.samplers import Sampler
from polyak.data.storage.storage import Storage

EXTRAS = "extras/"


def parts_state(storage: Storage, sampler: Sampler, relabel: Relabel | None, slots: np.ndarray) -> dict[str, Any]:
    """The state of a buffer's parts, with the rows of these slots."""
    state: dict[str, Any] = {"sampler": type(sampler).__name__, **storage.state_dict(slots)}
    for key, value in sampler.state_dict().items():
        state[f"sampler/{key}"] = value[slots] if isinstance(value, np.ndarray) else value
    if relabel is not None:
        state |= {f"relabel/{key}": value for key, value in relabel.state_dict(slots).items()}
    return state


def check_columns(storage: Storage, state: dict[str, Any]) -> None:
    """Refuse saved rows that do not fit a storage.

    Raises:
        ValueError: a column is missing, is one too many, or has another type or shape; names it.
    """
    ours = storage.state_dict(np.empty(0, np.int64))
    if unknown := [name for name in state if name.startswith(EXTRAS) and name not in ours]:
        names = [name.removeprefix(EXTRAS) for name in unknown]
        raise ValueError(f"The saved buffer has the columns {names}, this one does not: declare them with columns=.")
    for name, column in ours.items():
        saved = state.get(name)
        if saved is None:
            why = "declare other columns" if name.startswith(EXTRAS) else "it belongs to other observations"
            raise ValueError(f"The saved buffer has no {name!r}: {why}.")
        if saved.dtype != column.dtype or saved.shape[1:] != column.shape[1:]:
            raise ValueError(
                f"The saved {name!r} are {saved.dtype}{list(saved.shape[1:])} per step, this buffer holds "
                f"{column.dtype}{list(column.shape[1:])}: was it made for another environment?"
            )


def load_relabel(relabel: Relabel, state: dict[str, Any], rows: np.ndarray, slots: np.ndarray) -> None:
    """Give a relabelling back what was noted about the saved ``rows``, which are in ``slots`` now, if anything was."""
    if "relabel/rng" in state:
        relabel.load_state_dict(section(state, "relabel/"), rows, slots)


def load_sampler(
    sampler: Sampler,
    state: dict[str, Any],
    rows: np.ndarray,
    storage: Storage,
    slots: np.ndarray,
    relabel: Relabel | None,
) -> None:
    """Give a sampler its state back; to one of another kind every row is new that may be drawn."""
    if state["sampler"] != type(sampler).__name__:
        cells = (slots[:, None] * storage.envs + np.arange(storage.envs)).reshape(-1)
        sampler.include(cells if relabel is None else cells[relabel.eligible(cells)])
        return
    theirs = section(state, "sampler/")
    for key, value in theirs.items():
        if isinstance(value, np.ndarray):
            theirs[key] = np.zeros((storage.steps, *value.shape[1:]), value.dtype)
            theirs[key][slots] = value[rows]
    sampler.load_state_dict(theirs)


def section(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Entries whose key starts with a prefix, without it."""
    return {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
