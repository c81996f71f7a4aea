"""The interface of a model for callbacks."""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from gymnasium import spaces

from polyak.arrays import Flags, Memory, Predicted
from polyak.logging.logger import Logger


class Watched(Protocol):
    """The attributes of every algorithm that callbacks may use.

    Type checkers also accept attributes that only some algorithms have, such as ``policy`` or ``replay_buffer``, but
    without a type: ``assert isinstance(self.model, SAC)`` gives one.
    """

    observation_space: spaces.Space
    action_space: spaces.Space
    num_timesteps: int
    """Environment steps so far, over all environments; in offline training, gradient steps."""
    verbose: int
    seed: int | None
    ep_info_buffer: deque[dict[str, Any]]
    """The latest episodes: return ``"r"``, length ``"l"``, time ``"t"`` in seconds."""
    ep_success_buffer: deque[float]

    @property
    def logger(self) -> Logger:
        """The logger of the training."""

    @property
    def time_split(self) -> dict[str, float]:
        """Seconds of the present ``learn`` by activity."""

    def predict(
        self, observation: Any, state: Memory = None, episode_start: Flags = None, deterministic: bool = False
    ) -> Predicted:
        """Returns actions for observations, and the next state of a recurrent policy."""

    def save(self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None) -> None:
        """Write the model to a file."""

    def get_env(self) -> Any:
        """Returns the environment of the training; ``None`` without one."""

    def dump_logs(self) -> None:
        """Write the values recorded since the last dump."""

    def hyperparameters(self) -> dict[str, Any]:
        """Returns every hyper-parameter with its present value."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
