"""The saved form of a replay buffer's parts: numpy arrays and JSON values, without pickle.

Keys with a slash belong to an entry of a Dict observation, to an extra column, to the sampler, or to the relabelling.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.arrays import mapped, under
from polyak.envs.reading.plain_json import whole
from polyak.experience.hindsight.relabel import Relabel
from polyak.experience.record import Experience
from polyak.experience.ring import Ring
from polyak.experience.samplers import Sampler

EXTRAS = "extras/"
COMPUTED = "relabel/computed_rewards"
"""[rows, n_envs] the rewards that ``compute_reward`` of the environment in which the rows were collected gives for
them."""


def parts_state(ring: Ring, sampler: Sampler, relabel: Relabel | None, slots: np.ndarray) -> dict[str, Any]:
    """The state of a buffer's parts, with the rows of these slots."""
    state: dict[str, Any] = {"sampler": type(sampler).__name__, **ring.rows_state(slots)}
    for key, value in sampler.state_dict().items():
        state[f"sampler/{key}"] = value[slots] if isinstance(value, np.ndarray) else value
    if relabel is not None:
        state |= {f"relabel/{key}": value for key, value in relabel.state_dict(slots).items()}
    return state


def tensors_of_before(state: dict[str, Any], ring: Ring, obs_shape: Any, compact: bool) -> dict[str, Any]:
    """The state of a buffer in tensors that an earlier version wrote, as one of now.

    Args:
        state: has "written", the number of rows since the beginning, and successors as rows.
        ring: empty, like the buffer's.
        obs_shape: of an observation.
        compact: whether the ring stores each observation once; one row fewer was kept then.
    """
    where = "The saved buffer"
    steps, n_envs, written = (whole(state, name, where) for name in ("buffer_size", "n_envs", "written"))
    for name, ours in (("buffer_size", ring.length), ("n_envs", ring.n_envs)):
        if state[name] != ours:
            raise ValueError(f"The saved buffer has {name}={state[name]!r}, this one {ours}: build it alike.")
    count = len(state["rewards"])
    slots = np.arange(written - count, written) % steps
    columns = {name: state[name] for name in ring.columns if name in state}
    columns |= {"dones": state["terminated"] | state["truncated"], "timeouts": state["truncated"]}
    for name in ("observations", "next_observations"):
        columns[name] = mapped(lambda part, shape: part.reshape(count, n_envs, *shape), state[name], obs_shape)
    ring.extend(Experience(columns), copy=True)
    samplers = {name: value for name, value in state.items() if name.startswith("sampler/")}
    name = "Prioritized" if "sampler/priorities" in state else "RankBased" if "sampler/kinds" in state else "Uniform"
    return {
        "version": 1,
        "buffer_size": steps,
        "n_envs": n_envs,
        "pos": written % steps if count in (written, steps) else count,
        "full": count == steps,
        "optimize_memory_usage": compact,
        "rng": None,
        "sampler": name,
        **ring.rows_state(np.arange(count)),
        **{key: value[slots] if isinstance(value, np.ndarray) else value for key, value in samplers.items()},
    }


def check_rows(state: dict[str, Any]) -> int:
    """Returns the number of rows in a saved buffer, after checking that its positions and its arrays agree.

    The memory that is allocated depends on these positions, so they are compared with the saved rows.

    Raises:
        ValueError: they do not agree; the message names the entry and its value.
    """
    where = "The saved buffer"
    steps, n_envs = (whole(state, name, where, least=1) for name in ("buffer_size", "n_envs"))
    pos, full, rewards = whole(state, "pos", where), state.get("full"), state.get("rewards")
    if type(full) is not bool:
        raise ValueError(f"{where} has full={full!r:.80}, which is neither true nor false.")
    if not isinstance(rewards, np.ndarray) or rewards.ndim != 2 or rewards.shape[1] != n_envs:
        raise ValueError(f"{where} has no rewards of n_envs={n_envs} environments: it is damaged.")
    saved = len(rewards)
    if saved != (steps if full else pos) or pos >= steps:
        raise ValueError(
            f"{where} has pos={pos}, full={full} and buffer_size={steps}, but {saved} rows: it is damaged."
        )
    others = ("sampler/", "relabel/", "successors/", "frames")  # their arrays have other rows
    for name, array in state.items():
        if isinstance(array, np.ndarray) and not name.startswith(others) and array.shape[:2] != (saved, n_envs):
            raise ValueError(f"The saved {name!r} have the shape {array.shape}, not [{saved}, {n_envs}, ...].")
    _check_references(state, saved, n_envs)
    return saved


def check_columns(ring: Ring, state: dict[str, Any]) -> None:
    """Refuse saved rows that do not fit a ring.

    Raises:
        ValueError: a column is missing, is one too many, or has another type or shape; names it.
    """
    ours = ring.rows_state(np.empty(0, np.int64))
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


def _check_references(state: dict[str, Any], saved: int, n_envs: int) -> None:
    """Refuse rows that point to planes of images, or to rows, that are not there.

    Raises:
        ValueError: one does.
    """
    cells = state.get("successors/cells", np.empty(0, np.int64))
    if not isinstance(cells, np.ndarray) or cells.ndim != 1 or cells.dtype.kind not in "iu":
        raise ValueError("The saved 'successors/cells' are no numbers of rows: the buffer is damaged.")
    limits = {"successors/cells": saved * n_envs}
    for name, planes in state.items():
        if name.split("/")[0] == "frames":
            key = name.removeprefix("frames")
            limits |= {f"observations{key}": len(planes), f"successors/observations{key}": len(planes)}
    for name, most in limits.items():
        numbers = state.get(name)
        if isinstance(numbers, np.ndarray) and numbers.size and (numbers.max() >= most or numbers.min() < -1):
            raise ValueError(f"The saved {name!r} point to rows beyond the {most} that there are: it is damaged.")


def load_relabel(relabel: Relabel, state: dict[str, Any], rows: np.ndarray, slots: np.ndarray) -> None:
    """Restore a relabelling's records about the saved ``rows``, which are in ``slots`` now, if there are any."""
    if "relabel/rng" in state:
        relabel.load_state_dict(under("relabel", state), rows, slots)


def computed_rewards(state: dict[str, Any], rows: np.ndarray) -> np.ndarray | None:
    """Returns :data:`COMPUTED` of the saved ``rows``; ``None`` if it was unknown, or in older files.

    Raises:
        ValueError: it has another shape than the rewards.
    """
    if (found := state.get(COMPUTED)) is None:
        return None
    shape = state["rewards"].shape
    if not isinstance(found, np.ndarray) or found.dtype != np.float32 or found.shape != shape:
        raise ValueError(f"The saved {COMPUTED!r} are no float32 numbers {list(shape)}: the buffer is damaged.")
    return found[rows]


def load_sampler(
    sampler: Sampler,
    state: dict[str, Any],
    rows: np.ndarray,
    ring: Ring,
    slots: np.ndarray,
    relabel: Relabel | None,
) -> None:
    """Give a sampler its state back; to one of another kind every row is new that may be drawn."""
    if state["sampler"] != type(sampler).__name__:
        cells = (slots[:, None] * ring.n_envs + np.arange(ring.n_envs)).reshape(-1)
        sampler.include(cells if relabel is None else cells[relabel.eligible(cells)])
        return
    theirs = under("sampler", state)
    shape = (len(state["rewards"]), ring.n_envs)
    for key, value in theirs.items():
        if isinstance(value, np.ndarray):
            if value.shape != shape or not (np.isfinite(value).all() and value.min(initial=0) >= 0):
                raise ValueError(f"The saved 'sampler/{key}' are not {list(shape)} numbers of at least 0.")
            theirs[key] = np.zeros((ring.length, *value.shape[1:]), value.dtype)
            theirs[key][slots] = value[rows]
        elif key != "rng" and (isinstance(value, bool) or not isinstance(value, int | float) or not value < np.inf):
            raise ValueError(f"The saved 'sampler/{key}' is {value!r:.80}, not a number.")
    sampler.load_state_dict(theirs)
