"""Collecting experience with a policy: what the loops share, and how far a collection has come when a file is written.

Callbacks are asked between a step of the environments and its storage, so that they can stop training before it counts.
A file written then holds the step that is not stored yet, and training that is resumed from it stores it first.
"""

import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from polyak.checkpoint.collection import Collection
from polyak.checkpoint.saved import Saved, prefixed
from polyak.collecting.actor import Actor
from polyak.collecting.exploration import Dials, Exploration, RandomActions
from polyak.collecting.runner import Runner
from polyak.collecting.tensors.actor import TensorActor
from polyak.collecting.tensors.exploration import exploring_in_tensors
from polyak.data.step import Step
from polyak.distributed.learners import LearnerGroup
from polyak.distributed.runners import RemoteActor, RemoteEnvs, RunnerGroup, Transport
from polyak.envs import VecEnv
from polyak.envs.adapters.counted import Counted
from polyak.envs.batched import BatchedVecEnv
from polyak.envs.composed import is_composed
from polyak.envs.masks import Masks, mask_size
from polyak.experience.schema import Column
from polyak.hyperparameters.declaration import Count, Runners, require
from polyak.kinds.env_algorithm import Interaction
from polyak.kinds.held import HeldPart
from polyak.kinds.network_algorithm import RELOAD, DeepAlgorithm
from polyak.learning.learner import Learner
from polyak.nn.policies.base import Policy
from polyak.warning import advise


@dataclass(eq=False, repr=False)
class Collecting(Interaction, DeepAlgorithm):
    """Algorithms that learn with networks from the experience that their policy collects."""

    _: KW_ONLY
    n_runners: Runners = 0
    """Processes that step environments of their own and send what they collect; 0 steps them here. ``env`` is then a
    registered name, or a function that makes an environment or a vector of them (it is given the number of the process
    if it has an argument), and each process makes its own: ``model.n_envs`` counts those of all. Between updates all
    make the same number of steps with the newest weights."""
    n_learners: Count = 1
    """Processes that make each gradient step together, this one among them, on an equal share of the rows each; their
    gradients are averaged. ``compile="auto"`` does not compile these steps."""
    transport: Transport = "ray"
    """How other processes are reached: ``"ray"`` (needs ``polyak[scale]``), or ``"local"``, which keeps all of it in
    this process, with the same results."""

    built_with: ClassVar[Mapping[str, str]] = {
        name: RELOAD.format(name) for name in ("n_runners", "n_learners", "transport")
    }
    explores_by: ClassVar[tuple[str, ...]] = (
        "learning_starts",
        "action_noise",
        "use_sde",
        "use_sde_at_warmup",
        "sde_sample_freq",
    )
    """Attributes that exploration is built from, as far as an algorithm has them."""
    stores_masks: ClassVar[tuple[str, ...]] = ("masks",)
    """Which masks of a step are stored with it: ``"masks"``, that it was made under, and ``"next_masks"``."""

    def __post_init__(self, _init_setup_model: bool) -> None:
        self._dials = Dials()
        self._rows_have_masks = False
        """Whether a file has brought experience with masks, which environments need not have shown yet."""
        self._explored: list[Any] | None = None
        """The values of ``explores_by`` that the exploration of now was built from."""
        self._collection: Collection | None = None
        """The one that has begun, or that a file has brought."""
        self._learners: LearnerGroup | None = None
        self._held: tuple[HeldPart, ...] = ()
        """What is logged and saved with it."""
        super().__post_init__(_init_setup_model)

    # -- environments elsewhere ----------------------------------------------------------------------------------------

    def _vectorised(self, env: Any) -> VecEnv:
        if self.n_runners == 0 or isinstance(env, RemoteEnvs):
            return super()._vectorised(env)
        return RemoteEnvs(env, self.n_runners, self.transport, self.seed)

    def _masks(self) -> Masks | None:
        return None if isinstance(self.env, RemoteEnvs) else super()._masks()  # runners find them

    def _take_masks(self, allowed: np.ndarray) -> None:
        if not isinstance(self.env, RemoteEnvs):
            super()._take_masks(allowed)
            return
        self.env.masked = True
        self._masks_found()

    @property
    def _envs_of_an_actor(self) -> int:
        """Environments that one actor acts in: all, or those of one runner."""
        return self.env.per_runner if isinstance(self.env, RemoteEnvs) else self.n_envs

    def _plan(self, steps: int) -> None:
        """So many steps will be asked of the runner, one after another."""
        assert self.runner is not None
        self.runner.plan(steps)

    def _episodes_lost(self) -> None:
        """Some episodes ended without a last step, with the process that made them."""

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        shared = self.n_learners == 1 or self.learner_class.steps_are_shared
        fix = f"{type(self).__name__} learns from a rollout as a whole, in this process. Pass n_learners=1."
        require(shared, "n_learners", self.n_learners, fix)

    # -- learners elsewhere --------------------------------------------------------------------------------------------

    @property
    def _compiles(self) -> bool | Literal["auto"]:
        return False if self.n_learners > 1 and self.compile == "auto" else self.compile  # all must do the same

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        if self.n_learners == 1:
            return
        if self._learners is None:
            self._learners = LearnerGroup(self.n_learners, self.transport, self.seed)
            weakref.finalize(self, self._learners.close)
        self._learners.begin(self.learner)

    # -- environments in tensors ---------------------------------------------------------------------------------------

    def _setup_model(self) -> None:
        super()._setup_model()
        if isinstance(self.env, BatchedVecEnv) and not self.in_tensors:
            advise(
                "environments in tensors",
                f"{type(self).__name__} copies each step of the environments to numpy: {self._why_numpy()}.",
            )

    @property
    def in_tensors(self) -> bool:
        """Whether experience is collected, stored and learned from in tensors, none of which the host reads."""
        return isinstance(self.env, BatchedVecEnv) and self._why_numpy() is None

    def _why_numpy(self) -> str | None:
        """Why experience in tensors must be copied to numpy; ``None``: it need not be."""
        assert isinstance(self.env, BatchedVecEnv)
        if self.env.batch.device is None:
            return "they speak numpy"
        device = torch.device(self.env.batch.device)
        if device.type != self.device.type:
            return f"they are on {str(device)!r}, and the model is on {str(self.device)!r}. Pass device={str(device)!r}"
        if self._acting_policy.initial_memory(1) is not None:
            return "its policy is recurrent"
        if is_composed(self.action_space):
            return f"its actions are composed, {self.action_space}"
        for name, part in self._exploration().items():
            if exploring_in_tensors(part, self._acting_policy) is None:
                return f"there is no {name} of this kind in tensors"
        return None

    def _faster_device(self, learner: Learner) -> torch.device:
        if isinstance(self.env, BatchedVecEnv) and self.env.batch.device is not None:
            return torch.device(self.env.batch.device)
        return super()._faster_device(learner)

    def _make_runner(self) -> None:
        if isinstance(self.env, RemoteEnvs):
            actor: Any = self.make_actor()
            group: Any = RunnerGroup(self.env, actor, self._dials, self._split, self._heeds_masks)
            self.runner, group.on_loss = group, self._episodes_lost
            return
        if not self.in_tensors:
            super()._make_runner()
            return
        assert isinstance(self.env, BatchedVecEnv)
        batch = Counted(self.env.batch, self.stats_window_size, masks=self._heeds_masks)
        self.runner = Runner(batch, self.make_actor(), self._split)

    def _read_episodes(self) -> None:
        """Take over the statistics of episodes that have ended in tensors; the host waits for them."""
        if self.runner is None or not isinstance(self.runner.env, Counted):
            return
        fresh, newest = self.runner.env.episodes.read()
        self._episode_num += fresh
        seconds = round((time.time_ns() - self.start_time) / 1e9, 6)
        self.ep_info_buffer.extend({"r": float(r), "l": int(length), "t": seconds} for r, length in newest)

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning():
            yield
            self._read_episodes()

    def _write_logs(self, **counters: float) -> None:
        for part in self._held:
            part.record(self.logger)
        self._read_episodes()
        super()._write_logs(**counters)

    # -- acting --------------------------------------------------------------------------------------------------------

    @property
    def _acting_policy(self) -> Policy:
        """Whose actions are taken."""
        return self.policy

    def make_actor(self) -> Actor:
        """Acts with the present policy, and explores as the algorithm does."""
        elsewhere = isinstance(self.env, RemoteEnvs)
        kind = RemoteActor if elsewhere else TensorActor if self.in_tensors else Actor
        actor = kind(self._acting_policy, self._exploration())
        self._explored = self._exploration_options()
        return actor

    def _exploration_options(self) -> list[Any]:
        """The present values of what exploration is built from."""
        return list(map(vars(self).get, self.explores_by))

    def _exploration(self) -> dict[str, Exploration]:
        """What comes between policy and environments while collecting, by name, in the order in which it is asked."""
        return {}

    def _random_actions(self) -> RandomActions:
        return RandomActions(self.action_space, self.policy.codec)

    @property
    def _heeds_masks(self) -> bool:
        return super()._heeds_masks and self.policy.heeds_masks

    def _columns(self) -> tuple[Column, ...]:
        """What is stored with each step besides the usual: what the policy remembered before it, and what was allowed
        where environments say so."""
        memory = self._acting_policy.initial_memory(1) or {}
        columns = [
            Column(name, value.numpy(force=True).dtype, tuple(value.shape[1:])) for name, value in memory.items()
        ]
        columns += [Column(name, np.float32, shape) for name, shape in self._acting_policy.stores.items()]
        size = mask_size(self.action_space)
        shown = self.runner is not None and self.runner.env.masked
        if size is not None and (shown or self._rows_have_masks):
            columns += [Column(name, np.bool_, (size,)) for name in self.stores_masks]
        return tuple(columns)

    def _column_options(self) -> dict[str, Any]:
        """As an argument of buffers, which those of a user's own need not know as long as there are none."""
        columns = self._columns()
        return {"columns": columns} if columns else {}

    def _begin_collection(self) -> Collection:
        """Go on with the collection that a file has brought, or begin a new one."""
        assert self.runner is not None
        self._begin_acting(anew=self._collection is None and not self.runner.is_ahead)
        if self._collection is None:
            self._collection = Collection()
        return self._collection

    def _begin_acting(self, anew: bool = True) -> None:
        """Before the first step of a collection; not ``anew``: exploration goes on from where it stands."""
        assert self.runner is not None
        actor: Any = self.runner.actor
        if actor.policy is not self._acting_policy:
            actor.adopt(self._acting_policy)
        if anew and self._explored != self._exploration_options():
            actor.explore(self._exploration())
            self._explored = self._exploration_options()
        actor.begin(self.n_envs, anew)

    def _make_step(self, collection: Collection) -> Step:
        """One more step of the environments, yet to be stored."""
        runner: Any = self.runner
        if runner.actor.policy is not self._acting_policy:  # a callback may have put in another
            runner.actor.adopt(self._acting_policy)
        step = collection.pending = runner.step()
        collection.steps += 1
        self.num_timesteps += self.n_envs
        return step

    def _start_episodes(self) -> None:
        super()._start_episodes()
        self._collection = None
        runner: Any = self.runner
        runner.actor.prepare(runner.obs)

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        for part in self._held:
            part.adopt(name, self._current_progress_remaining)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _extra_state(self) -> dict[str, Any]:
        state = super()._extra_state()
        for part in self._held:
            state |= part.state()
        return state

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        super()._load_extra_state(state)
        for part in self._held:
            part.load_state(state)

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if self.runner is not None:
            saved.state |= prefixed("actor", self.runner.actor.state())
        if self._collection is not None:
            saved.info["collection"], arrays = self._collection.state()
            saved.state |= prefixed("collection", arrays)

    def _go_on(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._go_on(saved, resume, force_reset)
        if not resume or self.runner is None or saved.info["n_envs"] != self.n_envs:
            return
        self.runner.actor.load_state(saved.state_of("actor"))
        if "collection" in saved.info:
            self._collection = Collection.from_state(saved.info["collection"], saved.state_of("collection"))
