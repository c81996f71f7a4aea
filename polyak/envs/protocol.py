"""What a batch of environments says of a step: columns, in numpy or in tensors on a device."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces

Array = Any
"""``np.ndarray`` or ``torch.Tensor``; a dict of them where a space is a Dict."""


class Outcome(NamedTuple):
    """What one step of N environments led to, [N, ...] each."""

    successors: Array
    """The observation that the step led to, also where an episode ended."""
    rewards: Array
    """[N]"""
    terminated: Array
    """[N] bool: the episode ended in a terminal state."""
    truncated: Array
    """[N] bool: the episode was cut short in a state that is not terminal."""
    observations: Array
    """What to act on next: the first of a new episode where one ended, else the successor."""
    extras: dict[str, Array] = {}
    """Further columns by name, [N, ...] each."""
    masks: Array | None = None
    """[N, M] bool: which choices are allowed next; ``None``: all."""


@runtime_checkable
class BatchedEnv(Protocol):
    """N environments that step together and begin a new episode where one has ended."""

    num_envs: int
    observation_space: spaces.Space[Any]
    """Of one environment."""
    action_space: spaces.Space[Any]
    """Of one environment."""
    device: Any
    """Where its tensors are; ``None`` of one that speaks numpy."""

    def reset(self) -> tuple[Array, Array | None]:
        """Begin new episodes everywhere: observations [N, ...], and masks [N, M] or ``None``."""

    def step(self, actions: Array) -> Outcome:
        """Step each environment with its action, ``actions`` [N, ...]."""

    def get_state(self) -> Any:
        """All that decides what happens next, as arrays, numbers and texts in dicts and lists."""

    def set_state(self, state: Any) -> None:
        """Continue from what :meth:`get_state` returned."""
