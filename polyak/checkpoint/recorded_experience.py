"""Experience of a saved replay buffer, or of a model saved with its replay buffer, for a dataset."""

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.checkpoint.saved import damage_named, join_state
from polyak.checkpoint.saved import read as read_file
from polyak.checkpoint.serialise import decode
from polyak.experience import Column, Dataset, ReplayBuffer
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.source import Source
from polyak.experience.replay_state import EXTRAS, check_rows


def read(source: Source) -> RecordedData:
    """Reads the experience of the buffer, with actions in the environment's units.

    Raises:
        DatasetError: there is no replay buffer in the file, or its spaces are neither in the file nor given.
        ValueError: the file is damaged.
    """
    with damage_named(source.path):
        return _read(source)


def _read(source: Source) -> RecordedData:
    saved = read_file(source.path, kind=None, trust=source.trust)
    if "replay" not in saved.info or not saved.replay:
        raise DatasetError(
            f"{source} is a model without its replay buffer. Save it with model.save(path, include=['replay_buffer']), "
            "or let it act: collect(env, model)."
        )
    observation_space = source.observation_space or _space(saved.info, "observation_space")
    action_space = source.action_space or _space(saved.info, "action_space")
    if observation_space is None or action_space is None:
        raise DatasetError(
            f"{source} was written by a polyak that did not note spaces: pass observation_space and action_space."
        )
    state = join_state(saved.info["replay"], saved.replay)
    rows, n_envs = check_rows(state), int(state["n_envs"])
    buffer = ReplayBuffer(
        min(int(state["buffer_size"]), rows + 1) * n_envs,  # without unused capacity
        observation_space,
        action_space,
        "cpu",
        n_envs,
        optimize_memory_usage=bool(state["optimize_memory_usage"]),
        columns=_columns(state),
    )
    buffer.load_state_dict(state)
    recording = Dataset.from_buffer(buffer).recording
    scale, shift = decode(saved.info.get("extra_state", {})).get("reward_affine", (1.0, 0.0))
    if (scale, shift) == (1.0, 0.0):
        return recording
    return recording._replace(parts=recording.parts._replace(rewards=(recording.parts.rewards - shift) / scale))


def _space(info: dict[str, Any], name: str) -> spaces.Space | None:
    if name not in info:
        return None
    space = decode(info[name])
    if not isinstance(space, spaces.Space):
        raise ValueError(f"the file's {name} is {space!r:.80}, not a space: it is damaged.")
    return space


def _columns(state: dict[str, Any]) -> list[Column]:
    """Returns the extra columns of a saved buffer."""
    extras = {key.removeprefix(EXTRAS): value for key, value in state.items() if key.startswith(EXTRAS)}
    return [
        Column(name, array.dtype, array.shape[2:]) for name, array in extras.items() if isinstance(array, np.ndarray)
    ]
