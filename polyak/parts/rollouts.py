"""Rollouts of on-policy algorithms, and the gradient steps on them."""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

from polyak.checkpoint.saved import Saved, join_state, prefixed, split_state
from polyak.collecting.exploration import Exploration, gsde
from polyak.collecting.rollout import RolloutWriter
from polyak.collecting.stepwise import StepwiseWriter
from polyak.experience import RolloutBuffer
from polyak.hyperparameters.declaration import require
from polyak.loops.on_policy import rollout_updates
from polyak.loops.training import has_own
from polyak.loops.updates import Gained, Minibatches
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from polyak.parts.part import Part
from polyak.warning import warn_user

_MOST_STEPS = 10**9
"""Largest ``n_steps`` whose divisors are searched."""


class Rollouts(Part):
    """The rollout of an on-policy algorithm. Subclasses define the gradient steps."""

    buffer_class: type[RolloutBuffer] = RolloutBuffer
    """The class if ``rollout_buffer_class`` is ``None``."""
    stores_masks: ClassVar[tuple[str, ...]] = ("masks",)
    explores_by: ClassVar = ("use_sde", "sde_sample_freq")
    reads_rows_alone: ClassVar[bool] = False
    """Whether the gradient steps read a rollout only through its minibatches."""
    made_by_recipe: ClassVar[bool] = True
    """Whether buffers and writers depend on hyper-parameters only, so that other processes can create them."""
    numpy_alone: ClassVar[str | None] = None
    """The reason why rollouts are collected in numpy only; ``None``: tensors are supported, too."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.buffer: Any = None
        """The rollout buffer, once there are environments."""
        self.rewards_follow: Callable[[Any], None] | None = None
        """Computes the rewards of a rollout that was collected without them."""
        self._is_outdated = False
        """Whether the buffer must be replaced before the next rollout begins."""

    # -- what is learned -----------------------------------------------------------------------------------------------

    def lesson(self, minibatches: Minibatches) -> Gained:
        """Makes the gradient steps on a rollout, by default one on all rows."""
        update = self.model.learner.learn(next(minibatches(None)))
        return Gained({name: [value] for name, value in update.metrics.items()}, 1)

    def train(self) -> None:
        """Learn from the rollout buffer."""
        rollout_updates(self.model).make(self.buffer)

    def updates_per_rollout(self, rows: int) -> int:
        """Returns the number of gradient steps on a rollout of ``rows`` rows."""
        return 1

    def minibatches(self) -> Minibatches:
        """Returns a function that takes a minibatch size, ``None`` for all rows in one, and returns the minibatches of
        a pass over the rollout, for the learner's ``update``."""
        return cast(Minibatches, self.buffer.passes() if self.buffer.plain else self.buffer.get)

    def expected_updates(self, timesteps: int) -> tuple[int, int]:
        """Returns the gradient steps that this many environment steps will bring, and the rows of each."""
        rows = self.model.n_steps * self.model.n_envs
        return -(-timesteps // rows) * self.updates_per_rollout(rows), min(rows, self.model.batch_size or rows)

    # -- construction --------------------------------------------------------------------------------------------------

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"use_sde": True, **options} if self.model.use_sde else options

    def build(self) -> None:
        if self.model.env is not None:
            self.buffer = self.make_buffer()

    def check_ready(self, first: bool) -> None:
        self.check_batch_size()
        self._check_entropy_index()
        model = self.model
        rows = model.n_steps * model.n_envs
        uneven = model.env is not None and model.batch_size is not None and rows % model.batch_size
        if first and uneven and self.buffer.warns_of_rest:
            warn_user(
                f"a rollout has n_steps * n_envs = {model.n_steps} * {model.n_envs} = {rows} rows, of which batch_size="
                f"{model.batch_size} is not a factor: in every pass there will be a truncated mini-batch of size "
                f"{rows % model.batch_size}.",
                UserWarning,
            )

    def check_batch_size(self) -> None:
        """Refuses minibatches larger than a rollout."""
        model = self.model
        rows = model.n_steps * model.n_envs
        require(
            model.env is None or model.batch_size is None or model.batch_size <= rows,
            "batch_size",
            model.batch_size,
            f"a rollout has only n_steps * n_envs = {model.n_steps} * {model.n_envs} = {rows} rows. Use batch_size="
            f"{rows} or less, or a larger n_steps.",
        )

    def _check_entropy_index(self) -> None:
        model = self.model
        if model.entropy_index == 1:
            return
        fix = "actions that are squashed by tanh have no such entropy in closed form. Leave squash_output out."
        require(not model.policy.squash_output, "entropy_index", model.entropy_index, fix)
        fix = f"evaluate_actions() of {type(model.policy).__name__} has no argument entropy_index. Let it take one."
        takes = "entropy_index" in inspect.signature(model.policy.evaluate_actions).parameters
        require(takes, "entropy_index", model.entropy_index, fix)

    def change_env(self) -> None:
        if self.buffer is not None and self.buffer.in_tensors is not self.model.in_tensors:
            self.buffer, self.model._collection = self.make_buffer(), None

    def adopt(self, name: str, before: Any) -> None:
        self.check_batch_size()
        if name == "entropy_index":
            self._check_entropy_index()
        if self.buffer is None:
            return
        if name in ("gamma", "gae_lambda"):
            setattr(self.buffer, name, getattr(self.model, name))
        if name in ("n_steps", "batch_size", "rollout_buffer_class", "rollout_buffer_kwargs"):
            self.make_buffer()  # refuses invalid values
            self._is_outdated = True

    def why_numpy(self) -> str | None:
        model = self.model
        if self.numpy_alone is not None:
            return self.numpy_alone
        if model.rollout_buffer_class is not None or model.rollout_buffer_kwargs:
            return "a rollout buffer of your own has methods that take arrays (rollout_buffer_class)"
        if self.buffer_class is not RolloutBuffer:
            return "it reads after each step which episodes have ended, as their number decides when it learns"
        if getattr(model._acting_policy, "acts_by_forward", False):
            return f"{type(model._acting_policy).__name__} has a forward() of its own"
        return None

    # -- the buffer ----------------------------------------------------------------------------------------------------

    def buffer_recipe(self) -> Callable[..., Any] | None:
        """Makes a buffer, on a ``device``, where a rollout may be written elsewhere; ``None``: where it may not, since
        something of a program's own makes buffers, looks at each step, or learns from the rollout."""
        may_be = self.made_by_recipe and self.buffer is not None and self.writer().adopts
        return self._recipe() if may_be and not has_own(type(self.model), "train") else None

    def left_to_learners(self) -> Callable[..., Any] | None:
        """Returns the factory of buffers if remote learners fetch rollouts and nothing local reads them; otherwise
        ``None``."""
        fetches = self.reads_rows_alone and getattr(self.model.learner.fellows, "fetches", False)
        may_leave = fetches and self.buffer.plain and not self.buffer.order_reads_rows
        return self.buffer_recipe() if may_leave else None

    def make_buffer(self) -> Any:
        """Returns a buffer with the model's hyper-parameters, in numpy or in tensors."""
        return self._recipe()(device=self.model.device)

    def _recipe(self) -> Callable[..., Any]:
        model = self.model
        sequences: dict[str, Any] = {"in_tensors": True} if model.in_tensors else {}
        if isinstance(model.policy, RecurrentActorCriticPolicy):
            model.policy.sequence_length = sequences["sequence_length"] = self.sequence_length(model.policy.max_seq_len)
        return partial(
            model.rollout_buffer_class or self.buffer_class,
            model.n_steps,
            model.observation_space,
            model.action_space,
            gamma=model.gamma,
            gae_lambda=model.gae_lambda,
            n_envs=self.n_envs,
            **self.column_options(),
            **sequences,
            **(model.rollout_buffer_kwargs or {}),
        )

    @property
    def n_envs(self) -> int:
        """Number of environments whose steps form one rollout."""
        return cast(int, self.model.n_envs)

    def sequence_length(self, longest: int | None) -> int:
        """Returns the length of the sequences that a rollout is cut into for a recurrent policy, at most ``longest``.

        Raises:
            ValueError: there is no divisor of ``n_steps`` close to the wanted length.
        """
        steps, rows = self.model.n_steps, self.model.batch_size
        fix = f"a rollout of recurrent policies has at most {_MOST_STEPS:,} steps."
        require(steps <= _MOST_STEPS, "n_steps", steps, fix)
        longest = min(longest or steps, steps, rows or steps)
        length = _largest_divisor(steps, longest)
        fix = (
            f"rollouts are cut into equal sequences of at most {longest} steps, and more than half as many, for the "
            f"policy's memory. Use a multiple of {longest}, or another max_seq_len in policy_kwargs."
        )
        require(2 * length > longest, "n_steps", steps, fix)
        return length

    def find_masks(self) -> None:
        self.buffer = self.make_buffer()

    # -- collecting ----------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Replaces the buffer if a hyper-parameter has been set since it was made."""
        if self._is_outdated:
            self.buffer, self._is_outdated = self.make_buffer(), False

    def renew(self) -> None:
        """Empties the buffer for another rollout."""
        self.make_room()
        self.buffer.reset()

    def writer(self, steps: int | None = None) -> Any:
        """Returns the writer of steps into the buffer; ``steps``: length of the rollout, by default the buffer's size."""
        return self._writer_into(self.buffer, steps)

    def _writer_into(self, buffer: Any, steps: int | None = None) -> RolloutWriter:
        actor = self.model.runner.actor
        if buffer.values_may_follow and not getattr(actor.policy, "acts_by_forward", False):
            return RolloutWriter(buffer, actor, steps)
        return StepwiseWriter(buffer, actor, self.model.learner, steps)

    def exploration(self) -> dict[str, Exploration]:
        return gsde(self.model.use_sde, self.model.sde_sample_freq)

    def fresh_writer(self) -> Any:
        """Returns a writer into a new buffer."""
        return self._writer_into(self.make_buffer())

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, saved: Saved, include: set[str]) -> None:
        if self.model._collection is not None and self.buffer.resumable:
            saved.info["rollout"], arrays = split_state(self.buffer.state_dict())
            saved.state |= prefixed("rollout", arrays)
            saved.state |= prefixed("successors", self.buffer.finals_state())

    def resume(self, saved: Saved, resume: bool) -> None:
        if self.model._collection is None:
            return
        if "rollout" in saved.info and self.buffer.resumable:
            self.buffer.load_state_dict(join_state(saved.info["rollout"], saved.state_of("rollout")))
            self.buffer.load_finals(saved.state_of("successors"))
        else:
            self.model._collection = None


def _largest_divisor(number: int, most: int) -> int:
    """Returns the largest divisor of a number that is at most ``most``."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return max(n for n in (*small, *(number // n for n in small)) if n <= most)
