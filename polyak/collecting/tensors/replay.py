"""A replay buffer in tensors: rows are written, drawn and learned from on one device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.collecting.tensors.rows import row_of, rows_layout
from polyak.experience import Experience, Replay, Ring, Sampler, Schema
from polyak.experience.batch import Transition
from polyak.experience.memory import check_memory
from polyak.experience.samplers import make_sampler
from polyak.experience.step import NO_EXTRAS, Step


class TensorReplay:
    """The newest ``buffer_size`` transitions of ``n_envs`` environments on a device.

    It stands where a :class:`~polyak.experience.ReplayBuffer` stands. Which rows are drawn is decided on the host, from
    numpy's random numbers; their columns are gathered where they are.

    Args:
        buffer_size: transitions kept in all; each environment gets ``buffer_size // n_envs`` steps.
        observation_space, action_space: of one environment.
        device: where the columns are.
        n_envs: number of environments.
        optimize_memory_usage: store each observation once.
        sampler: which rows are drawn; ``None``: uniformly.
        n_steps: most rows that a return sums.
        gamma: discount of one step within such returns.
        columns: what else each row holds.

    Raises:
        InsufficientMemoryError: the full buffer would not fit into the host's memory, if that is the device.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device,
        n_envs: int,
        optimize_memory_usage: bool = False,
        sampler: Sampler | str | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        columns: Any = None,
    ) -> None:
        self.buffer_size, self.n_envs, self.device = max(buffer_size // n_envs, 1), n_envs, device
        self.observation_space, self.action_space = observation_space, action_space
        self.schema = Schema.of(columns)
        layout = rows_layout(observation_space, action_space, self.schema)
        if device.type == "cpu":
            what = f"The replay buffer ({buffer_size:,} transitions of {observation_space})"
            check_memory(layout.itemsize * self.buffer_size * n_envs, what, "Use a smaller buffer_size.")
        ring = Ring(layout, self.buffer_size, n_envs, device, share_frames=optimize_memory_usage)
        self.replay = Replay(ring, make_sampler(sampler), gamma, n_steps)

    @property
    def ring(self) -> Ring:
        """Where the rows are."""
        return self.replay.ring

    def size(self) -> int:
        """Number of filled steps (of all environments together)."""
        return self.ring.filled

    def reset(self) -> None:
        """Empty the buffer."""
        self.ring.clear()
        self.replay.sampler.prepare(self.buffer_size, self.n_envs)

    def close(self) -> None:
        """There is nothing to free."""

    # -- writing -------------------------------------------------------------------------------------------------------

    def record(self, step: Step) -> None:
        """Store one step of the environments."""
        self.replay.append(row_of(step, self.schema))

    def cut_episodes(self) -> None:
        """Let the running episodes end, by truncation, at the newest row: what comes next belongs to another one."""
        if self.size():
            columns, newest = self.ring.columns, self.ring.newest
            columns["truncated"][newest] = ~columns["terminated"][newest]

    # -- reading -------------------------------------------------------------------------------------------------------

    def can_sample(self) -> bool:
        """Whether there is anything to draw."""
        return self.replay.can_sample()

    def transitions(
        self, batch_size: int, gamma: float, env: None = None, batches: int = 1, late: bool = False
    ) -> Iterator[tuple[Transition, Any]]:
        """Draw minibatches in the form in which learners take them.

        Args:
            batch_size: transitions in each.
            gamma: discount of one step, where the buffer does not sum several.
            env: ``None``: columns are what the environments gave.
            batches: how many.
            late: has no meaning here: rows are gathered on the device.
        Yields:
            a minibatch, and the cells of its rows for :meth:`update_priorities`, or ``None`` where they have none.
        """
        if self.replay.n_steps == 1:
            self.replay.gamma = gamma
        for _ in range(batches):
            batch = self.replay.sample(batch_size)
            weighted = "weights" in batch.columns
            yield self._transition(batch), torch.from_numpy(self.replay.drawn) if weighted else None

    def _transition(self, batch: Experience) -> Transition:
        return Transition(
            batch.observations,
            batch.actions,
            batch.rewards,
            batch.next_observations,
            batch.discounts,
            batch["weights"] if "weights" in batch.columns else torch.ones_like(batch.rewards),
            batch.columns.get("extras", NO_EXTRAS),
        )

    def anneal(self, progress: float) -> None:
        """Set how far training has come for the sampler: 0 at its start, 1 at its end."""
        if self.replay.sampler.adaptive:
            self.replay.sampler.anneal(progress)

    def update_priorities(self, cells: Tensor, td_errors: Tensor) -> None:
        """How wrong the critic was about the newest minibatch. Priorities are on the host, which waits for them."""
        self.replay.update_priorities(td_errors)

    def discount_by(self, gamma: float) -> None:
        """Sum returns of several steps with another discount from now on."""
        self.replay.gamma = gamma

    # -- keeping -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The filled rows, oldest first, as arrays [steps, n_envs, ...], and how they are drawn."""
        rows = self.ring.all().to(None)
        sampler = {f"sampler/{key}": value for key, value in self.replay.sampler.state_dict().items()}
        return {"buffer_size": self.buffer_size, "n_envs": self.n_envs, "written": self.ring.written, **sampler, **rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back a :meth:`state_dict` of a buffer of the same size.

        Raises:
            ValueError: it is of another size.
        """
        for name in ("buffer_size", "n_envs"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"The saved buffer has {name}={state[name]!r}, this one {getattr(self, name)}: build it alike."
                )
        self.reset()
        columns = {name: state[name] for name in self.replay.ring.columns if name != "final"}
        columns["next_observations"] = state["next_observations"]
        self.ring.written = state["written"] - len(columns["rewards"])  # every row to its old place
        self.ring.extend(Experience(columns), copy=True)
        own = {key[len("sampler/") :]: value for key, value in state.items() if key.startswith("sampler/")}
        self.replay.sampler.load_state_dict(own)
