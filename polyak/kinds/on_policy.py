"""On-policy learning: roll out, estimate advantages, make a few passes over the rollout, forget it."""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, cast

from polyak.algorithm import GymEnv, Recipe
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved, join_state, prefixed, split_state
from polyak.collecting.exploration import Exploration, gsde
from polyak.collecting.rollout import Successors
from polyak.collecting.tensors.rollout import TensorRollout
from polyak.data import RolloutBuffer
from polyak.distributed.runners import Transport
from polyak.hyperparameters.changing import Reload, WithNetworks
from polyak.hyperparameters.declaration import Count, Fraction, Learners, NonNegative, Positive, Runners, require
from polyak.hyperparameters.held import Held
from polyak.kinds.network_algorithm import NetworkAlgorithm
from polyak.loops.on_policy import on_policy_loop, train_on_rollout, writer_of
from polyak.loops.training import Loop
from polyak.loops.updates import Gained, Minibatches
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from polyak.schedules import Schedule
from polyak.warning import warn_user

_MOST_STEPS = 10**9
"""Of which divisors are looked for."""


@dataclass(eq=False, repr=False)
class OnPolicyAlgorithm(NetworkAlgorithm):
    """Algorithms that learn from fresh rollouts of their own policy."""

    _: KW_ONLY
    n_runners: Reload[Runners] = 0
    """Processes that step environments of their own and send what they collect; 0 steps them here. ``env`` is then a
    registered name, or a function that makes an environment or a vector of them (it is given the number of the process
    if it has an argument), and each process makes its own: ``model.n_envs`` counts those of all. Between updates all
    make the same number of steps with the newest weights."""
    n_learners: Reload[Learners] = 1
    """Processes that make each gradient step together, this one among them, on an equal share of the rows each; their
    gradients are averaged. ``compile="auto"`` does not compile these steps."""
    transport: Reload[Transport] = "ray"
    """How other processes are reached: ``"ray"`` (needs ``polyak[scale]``), or ``"local"``, which keeps all of it in
    this process, with the same results."""
    runner_timeout: Reload[Positive | None] = 60.0
    """Seconds within which the environments of a runner on Ray must have answered to a step or a reset; a runner whose
    environments take longer is replaced, with a warning. ``None`` waits for ever."""
    n_steps: Count = 2048
    """Steps per environment in one rollout."""
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]."""
    gae_lambda: Fraction = 0.95
    """Trace decay of generalised advantage estimation, in [0, 1]: 0 is one-step TD, 1 Monte Carlo."""
    rollout_buffer_class: type[RolloutBuffer] | None = None
    """A class to use instead of :class:`~polyak.data.RolloutBuffer`."""
    rollout_buffer_kwargs: dict[str, Any] | None = None
    """Further arguments of the rollout buffer."""
    use_sde: WithNetworks[bool] = False
    """Explore with noise that depends on the state (gSDE, arXiv:2005.05719) instead of independent Gaussian noise."""
    sde_sample_freq: int | Literal["episode"] = -1
    """Steps between two draws of gSDE's exploration matrix; -1 draws only at the start of a rollout; ``"episode"``
    draws one for each episode, where it begins."""
    ent_coef: NonNegative | Schedule = 0.0
    """Weight of the entropy bonus: a number, or a function of the remaining progress."""
    entropy_index: Positive = 1.0
    """Index q of the Tsallis entropy that the bonus measures (arXiv:1902.00137): 1 is Shannon's; 2 asks for sparse
    policies, exactly so with ``policy_kwargs={"sparse": True}``."""
    max_grad_norm: NonNegative | None = 0.5
    """Largest global norm of the gradient, beyond which it is scaled down; ``None`` never does."""
    vf_coef: NonNegative = 0.5
    """Weight of the value loss."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and standard deviation 1 within each minibatch."""

    supports_masks: ClassVar[bool] = True
    batch_size = cast(int, None)
    """Rows of a minibatch, where a subclass has them as a hyper-parameter; else all of a rollout."""
    _rollout_buffer_class: ClassVar[type[RolloutBuffer]] = RolloutBuffer
    _outgrown = False
    """Whether the next rollout needs another buffer."""
    _successors = cast(Successors, None)
    """Those of the rollout that is being collected."""
    beginning: ClassVar[tuple[Callable[..., None], ...]] = ()
    """Called with the model before a rollout begins."""
    completing: ClassVar[tuple[Callable[..., None], ...]] = ()
    """The same when it is whole, before the learner evaluates it."""
    watching: ClassVar[tuple[Callable[..., None], ...]] = ()
    """The same, and what was learned from it, when that is logged."""
    loop: ClassVar[Callable[..., Loop]] = on_policy_loop
    train = train_on_rollout
    _iteration = Held[int]("clock.iterations")
    rewards_follow = cast(Any, None)
    """Fills in the rewards of a rollout that was collected without them."""

    @classmethod
    def trial(cls) -> dict[str, Any]:
        return {**super().trial(), "n_steps": 64}

    # -- construction --------------------------------------------------------------------------------------------------

    def __post_init__(self, _init_setup_model: bool) -> None:
        super().__post_init__(_init_setup_model)
        self._check_batch_size()
        rows = self.n_steps * self.n_envs
        uneven = self.env is not None and self.batch_size is not None and rows % self.batch_size
        if uneven and self.rollout_buffer.warns_of_rest:
            warn_user(
                f"a rollout has n_steps * n_envs = {self.n_steps} * {self.n_envs} = {rows} rows, of which batch_size="
                f"{self.batch_size} is not a factor: in every pass there will be a truncated mini-batch of size "
                f"{rows % self.batch_size}.",
                UserWarning,
            )

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.env is not None:
            self.rollout_buffer = self._make_rollout_buffer()

    def _check_batch_size(self) -> None:
        rows = self.n_steps * self.n_envs
        require(
            self.env is None or self.batch_size is None or self.batch_size <= rows,
            "batch_size",
            self.batch_size,
            f"a rollout has only n_steps * n_envs = {self.n_steps} * {self.n_envs} = {rows} rows. Use batch_size={rows}"
            " or less, or a larger n_steps.",
        )

    def _check_built(self) -> None:
        super()._check_built()
        self._check_entropy_index()

    def _check_entropy_index(self) -> None:
        if self.entropy_index == 1:
            return
        fix = "actions that are squashed by tanh have no such entropy in closed form. Leave squash_output out."
        require(not self.policy.squash_output, "entropy_index", self.entropy_index, fix)
        fix = f"evaluate_actions() of {type(self.policy).__name__} has no argument entropy_index. Let it take one."
        takes = "entropy_index" in inspect.signature(cast(ActorCriticPolicy, self.policy).evaluate_actions).parameters
        require(takes, "entropy_index", self.entropy_index, fix)

    def _policy_options(self) -> dict[str, Any]:
        return {"use_sde": True, **super()._policy_options()} if self.use_sde else super()._policy_options()

    def _exploration(self) -> dict[str, Exploration]:
        return gsde(self.use_sde, self.sde_sample_freq)

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        super().set_env(env, force_reset)
        if "rollout_buffer" in vars(self) and isinstance(self.rollout_buffer, TensorRollout) is not self.in_tensors:
            self.rollout_buffer, self._collection = self._make_rollout_buffer(), None

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        self._check_batch_size()
        if name == "entropy_index":
            self._check_entropy_index()
        if "rollout_buffer" not in vars(self):
            return
        if name in ("gamma", "gae_lambda"):
            setattr(self.rollout_buffer, name, getattr(self, name))
        if name in ("n_steps", "batch_size", "rollout_buffer_class", "rollout_buffer_kwargs"):
            self._make_rollout_buffer()  # which refuses what cannot be
            self._outgrown = True

    def _why_numpy(self) -> str | None:
        cls, plain = type(self), OnPolicyAlgorithm
        for name in ("loop", "_writer", "beginning"):
            if getattr(cls, name) is not getattr(plain, name):
                return f"it collects rollouts by its own {name}()"
        if (
            self.rollout_buffer_class is not None
            or self.rollout_buffer_kwargs
            or self._rollout_buffer_class is not RolloutBuffer
        ):
            return "its rollout buffer is in numpy"
        if getattr(self._acting_policy, "acts_by_forward", False):
            return f"{type(self._acting_policy).__name__} has a forward() of its own"
        return super()._why_numpy()

    def _make_rollout_buffer(self) -> RolloutBuffer:
        if self.in_tensors:
            return cast(RolloutBuffer, self._make_tensor_rollout())
        cls = self.rollout_buffer_class or self._rollout_buffer_class
        sequences: dict[str, Any] = {}
        if isinstance(self.policy, RecurrentActorCriticPolicy):
            self.policy.sequence_length = sequences["sequence_length"] = self._sequence_length(self.policy.max_seq_len)
        return cls(
            self.n_steps,
            self.observation_space,
            self.action_space,
            device=self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self._envs_of_a_rollout,
            **self._column_options(),
            **sequences,
            **(self.rollout_buffer_kwargs or {}),
        )

    def _make_tensor_rollout(self) -> TensorRollout:
        return TensorRollout(
            self.n_steps,
            self.observation_space,
            self.action_space,
            self.device,
            self.gae_lambda,
            self.gamma,
            self.n_envs,
            self._columns(),
        )

    @property
    def _envs_of_a_rollout(self) -> int:
        """Environments whose steps make one rollout."""
        return self.n_envs

    def _sequence_length(self, longest: int | None) -> int:
        """Steps of the sequences of which a rollout is made for a recurrent policy, ``longest`` at most.

        Raises:
            ValueError: it cannot be cut into equal ones of about the length that the policy wants.
        """
        fix = f"a rollout of recurrent policies has at most {_MOST_STEPS:,} steps."
        require(self.n_steps <= _MOST_STEPS, "n_steps", self.n_steps, fix)
        longest = min(longest or self.n_steps, self.n_steps, self.batch_size or self.n_steps)
        length = _largest_divisor(self.n_steps, longest)
        fix = (
            f"rollouts are cut into equal sequences of at most {longest} steps, and more than half as many, for the "
            f"policy's memory. Use a multiple of {longest}, or another max_seq_len in policy_kwargs."
        )
        require(2 * length > longest, "n_steps", self.n_steps, fix)
        return length

    # -- the loop ------------------------------------------------------------------------------------------------------

    def lesson(self, minibatches: Minibatches) -> Gained:
        """What it learns from a rollout: here one gradient step on all of it."""
        update = self.learner.learn(next(minibatches(None)))
        return Gained({name: [value] for name, value in update.metrics.items()}, 1)

    def renew_rollout_buffer(self) -> None:
        """Before a rollout begins: make room for it, if a hyper-parameter has been set meanwhile."""
        if self._outgrown:
            self.rollout_buffer, self._outgrown = self._make_rollout_buffer(), False

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        self._check_batch_size()  # a loaded model may have another number of environments
        self.clock.iterations = 0
        return super()._setup_learn(*args, **kwargs)

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        rows = self.n_steps * self.n_envs
        return -(-timesteps // rows) * self._updates_per_rollout(rows), min(rows, self.batch_size or rows)

    def _updates_per_rollout(self, rows: int) -> int:
        """Gradient steps that :meth:`train` makes of a rollout of so many rows."""
        return 1

    def _writer(self, buffer: RolloutBuffer, successors: Successors, steps: int | None = None) -> Any:
        """What steps enter the buffer by."""
        return writer_of(buffer, successors, self, steps)

    def _masks_found(self) -> None:
        self.rollout_buffer = self._make_rollout_buffer()

    # -- files ---------------------------------------------------------------------------------------------------------

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if self._collection is not None and self.rollout_buffer.resumable:
            saved.info["rollout"], arrays = split_state(self.rollout_buffer.state_dict())
            saved.state |= prefixed("rollout", arrays)
            saved.state |= prefixed("successors", self._successors.state())

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if self._collection is None:
            return
        if "rollout" in saved.info and self.rollout_buffer.resumable:
            self.rollout_buffer.load_state_dict(join_state(saved.info["rollout"], saved.state_of("rollout")))
            self._successors = Successors.from_state(saved.state_of("successors"), self.device)
        else:
            self._collection = None

    # -- learning ------------------------------------------------------------------------------------------------------

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the statistics of finished episodes, the speed and whatever was recorded since the last dump.

        Args:
            iteration: number of this rollout, to log; 0 logs none.
        """
        self._write_logs(**({"iterations": iteration} if iteration > 0 else {}))

    @property
    def _minibatches(self) -> Callable[[int | None], Iterator[Any]]:
        """Called with their size, None for all rows in one: the minibatches of a pass over the rollout, for the
        learner's ``update``."""
        buffer, late = self.rollout_buffer, self.learner.gathers_late or self.learner.fellows is not None
        return buffer.passes() if late and buffer.plain else buffer.get


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most ``most``."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return max(n for n in (*small, *(number // n for n in small)) if n <= most)
