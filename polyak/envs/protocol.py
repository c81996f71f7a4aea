"""The protocol of vectorised environments: steps as columns, in numpy or in tensors on a device."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces

Array = Any
"""An ``np.ndarray`` or ``torch.Tensor``; a dict of them for a Dict space."""


NOTHING: dict[str, Any] = {}
"""The columns of steps without any; stays empty."""


class First(NamedTuple):
    """The results of a reset of N environments, [N, ...] each."""

    observations: Array
    """The observations to act on."""
    masks: Array | None = None
    """[N, M] bool: which choices are allowed; ``None``: all."""
    stored: Array | None = None
    """``observations`` as experience keeps them, where these differ, as before normalisation."""


class Outcome(NamedTuple):
    """The result of one step of N environments, [N, ...] each."""

    successors: Array
    """The observation that the step led to, also where an episode ended; as experience keeps it."""
    rewards: Array
    """[N]"""
    terminated: Array
    """[N] bool: the episode ended in a terminal state."""
    truncated: Array
    """[N] bool: the episode was truncated in a state that is not terminal."""
    observations: Array
    """The observations to act on next: the first of a new episode where one ended, else the successor."""
    dones: Array
    """[N] bool: the episode ended, for whatever reason."""
    ended: bool = False
    """Whether an episode ended, if the host has that value; ``False`` in tensors, which the host does not read."""
    infos: Any = ()
    """The environments' infos, for callbacks and buffers of a user's own; nothing else reads them."""
    episodes: dict[str, Array] = NOTHING
    """Statistics of the episodes that ended, [N] each: ``returns``, ``lengths`` (0 where none ended), ``seconds``,
    ``success`` and further statistics. Empty if there are none."""
    masks: Array | None = None
    """[N, M] bool: which choices are allowed next; ``None``: all."""
    stored: Array | None = None
    """``observations`` as experience keeps them, where these differ, as before normalisation."""
    extras: dict[str, Array] = NOTHING
    """Further columns of experience by name, [N, ...] each; ``next_masks`` [N, M] of the successors, with ``masks``."""


@runtime_checkable
class BatchedEnv(Protocol):
    """N environments that step together and begin a new episode where one has ended."""

    num_envs: int
    observation_space: spaces.Space[Any]
    """The observation space of one environment."""
    action_space: spaces.Space[Any]
    """The action space of one environment."""
    device: Any
    """The device of its tensors; ``None`` if it uses numpy."""

    @property
    def resets(self) -> int:
        """How often all environments were reset. Training compares it to detect that another program has used them."""

    @property
    def masked(self) -> bool:
        """Whether it has action masks."""

    def reset(self) -> First:
        """Begin new episodes everywhere."""

    def step(self, actions: Array) -> Outcome:
        """Step each environment with its action, ``actions`` [N, ...]."""

    def get_state(self) -> Any:
        """Returns everything that determines the next steps, as arrays, numbers and texts in dicts and lists."""

    def set_state(self, state: Any) -> None:
        """Restores a state that :meth:`get_state` returned."""
