"""The action spaces that an algorithm supports, and the alternatives to propose for others."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed, parts
from polyak.envs.spaces import SpaceError, wide_bounds
from polyak.warning import advise

TAKE = {
    spaces.Box: "SAC, TD3 or PPO",
    spaces.Discrete: "DQN, PPO or DiscreteSAC",
    spaces.MultiDiscrete: "PPO, A2C or TRPO",
    spaces.MultiBinary: "PPO, A2C or TRPO",
    spaces.Dict: "PPO, A2C or TRPO",
    spaces.Tuple: "PPO, A2C or TRPO",
}
"""Kind of an action space -> algorithms that learn by acting in it."""
FROM_DATA = {
    spaces.Box: "IQL, CQL or BC",
    spaces.Discrete: "DiscreteCQL, BCQ or BC",
    spaces.MultiDiscrete: "BC",
    spaces.MultiBinary: "BC",
}
"""Kind of an action space -> algorithms that learn from recorded actions."""


def check_action_space(
    name: str,
    space: spaces.Space,
    supported: tuple[type[spaces.Space], ...],
    others: Mapping[type[spaces.Space], str],
    explores_by_one: bool,
) -> None:
    """Refuse an action space that an algorithm cannot act in.

    Args:
        name: of the algorithm.
        space: in question.
        supported: kinds of spaces that it can act in.
        others: kind of a space -> algorithms to use instead.
        explores_by_one: whether its actions have a standard deviation of about 1 at first, in the space's units.

    Raises:
        SpaceError: it cannot act there, or not in a part of a composed space.
    """
    if not isinstance(space, supported):
        instead = others.get(type(space), "")
        raise SpaceError(
            f"{name} does not support the action space {space}. The algorithm only supports "
            f"{', '.join(kind.__name__ for kind in supported)}: use another algorithm"
            f"{instead and f', such as {instead}'}, or wrap the environment."
        )
    if 0 in (space.shape or ()):
        raise SpaceError(f"The action space {space} has no entries, so that there is nothing to choose. Give it one.")
    if is_composed(space):
        found = parts(space)
        if not found:
            raise SpaceError(f"The action space {space} has no parts. Give it one.")
        for part in found:
            try:
                check_action_space(name, part.space, supported, others, explores_by_one)
            except SpaceError as error:
                raise SpaceError(f"In the action space {space}, part {part.name!r}: {error}") from None
    if isinstance(space, spaces.Box) and not np.all(np.isfinite(np.array([space.low, space.high]))):
        raise SpaceError(
            f"{name} needs finite bounds of a continuous action space, got {space}. Wrap the environment in "
            "gymnasium.wrappers.RescaleAction or give the Box finite low and high."
        )
    if isinstance(space, spaces.Box) and explores_by_one:
        low, high = wide_bounds(space)
        half = float(np.max(high - low)) / 2
        if not 0.1 <= half <= 10:
            advise(
                "scale of actions",
                f"{name} explores with a standard deviation of about 1, but the actions of {space} span "
                f"+-{half:g}. Bring them to [-1, 1]: gymnasium.wrappers.RescaleAction(env, -1, 1).",
            )
    if isinstance(space, spaces.MultiBinary) and len(space.shape) > 1:
        raise SpaceError(
            f"Multi-dimensional MultiBinary({space.n}) action space is not supported. Flatten it to one dimension."
        )
