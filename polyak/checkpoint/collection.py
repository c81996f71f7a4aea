"""The progress of a series of environment steps when a file is written.

Callbacks are called between a step of the environments and its storage, so that they can stop training before it is
stored. A file written then holds the pending step, and resumed training stores that step first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyak.arrays import Device, flat, place, unflat
from polyak.checkpoint.serialise import decode, encode
from polyak.collecting.exploration import Arrays
from polyak.collecting.train_freq import Series
from polyak.envs.adapters.infos import episode_columns
from polyak.experience.step import Step


@dataclass
class Collection(Series):
    """The progress of a series of environment steps."""

    pending: Step | None = None
    """A step that is not stored yet, while callbacks are called."""

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Returns JSON values and arrays. Of infos only numbers, text, arrays and collections of them are included."""
        values: dict[str, Any] = {"steps": self.steps, "episodes": self.episodes}
        if (pending := self.pending) is None:  # read once: another thread may save while the step is stored
            return values, {}
        fields = pending._asdict()
        del fields["episodes"]  # infos contain them, too
        values["infos"] = [
            {key: encode(value) for key, value in info.items() if _is_data(value)} for info in fields.pop("infos")
        ]
        values["ended"] = fields.pop("ended")
        if isinstance(pending.env_actions, list):
            values["env_actions"] = encode(fields.pop("env_actions"))
        return values, {key: place(v, None) for name, value in fields.items() for key, v in flat(name, value).items()}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Arrays, device: Device = None) -> "Collection":
        """Restores the result of :meth:`state`; ``device``: of the environments, ``None`` for numpy."""
        collection = cls(values["steps"], values["episodes"])
        if "infos" in values:
            infos = [{key: decode(value) for key, value in info.items()} for info in values["infos"]]
            others = ("infos", "ended", "extras", "episodes")
            here = {name: place(column, device) for name, column in arrays.items()}
            fields = {name: unflat(name, here) for name in Step._fields if name not in others}
            extras = unflat("extras", here) or {}
            if "env_actions" in values:
                fields["env_actions"] = decode(values["env_actions"])
            episodes = episode_columns(infos, arrays["dones"] if infos else None)  # tensors come without infos
            collection.pending = Step(**fields, infos=infos, ended=values["ended"], extras=extras, episodes=episodes)
        return collection


def _is_data(value: Any) -> bool:
    """Whether a value can be written to a file that runs no code."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_data(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    if isinstance(value, np.ndarray):
        return value.dtype != object
    return value is None or isinstance(value, bool | int | float | str | np.generic)
