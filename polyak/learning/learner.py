"""The learner: everything that changes when you learn, and the rule that changes it.

A learner sees tensors only: never an environment, a logger, a buffer or numpy. That is why the same object can run
eagerly in this process, as a compiled program, or in another process.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeVar, get_args, get_origin

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyak.arrays import leaves
from polyak.experience.batch import RolloutRows, gathered
from polyak.learning.averaging import Average
from polyak.learning.data_parallel import Fellows, Group, each, share_of
from polyak.learning.engine.optimizer_rules import TracedOptimizer
from polyak.learning.light_optimizers import lighten, spare_compiler
from polyak.nn.compiled import keep_plain_names, plain_name
from polyak.nn.policies.base import Policy
from polyak.nn.precision import PRODUCTS_IN

Metrics = Mapping[str, Tensor]
"""Detached 0-d tensors by log name. They stay on the device until they are logged."""

T = TypeVar("T")
Tunable = Annotated[T, "tunable"]
"""``tau: Tunable[Tensor]`` in a learner: it reads the algorithm's hyper-parameter of that name, which may move during
training, by schedule, callback or hand. ``Tunable[Tensor]`` is a 0-d buffer, so that it moves without recompiling a
graph that reads it; ``Tunable[int]`` and others are plain attributes, which Python control flow may read."""


class Objective(NamedTuple):
    """What to minimise, and what is worth knowing about it."""

    loss: Tensor
    """[] what gradients are taken of."""
    metrics: Metrics = {}
    """Besides the loss."""
    td_error: Tensor | None = None
    """[B] size of each row's temporal-difference error, detached."""

    def plus(self, term: Tensor, **metrics: Tensor) -> "Objective":
        """The same with one more term [] in the loss, and more metrics."""
        return self._replace(loss=self.loss + term, metrics={**self.metrics, **metrics})


class Update(NamedTuple):
    """What a learner says of one update."""

    metrics: Metrics
    td_error: Tensor | None = None
    """[B] size of each row's temporal-difference error, by which a prioritised buffer replays it; None: none is known.
    """
    skipped: Tensor | None = None
    """[] bool: the update went too far already, and nothing was changed any more; None: such is not asked."""


class Executor(Protocol):
    """Calls a learner's methods some other way than line by line, as the engine does; see :meth:`Learner.run_by`."""

    compiles: bool
    """Whether methods run as programs where they can."""
    learned: bool
    """Whether a method has run where gradients are taken."""


spare_compiler()
_AVERAGE = "average."
"""Names of the average's tensors among those of the networks begin with it."""
_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


@dataclass(frozen=True)
class OptimizerRecipe:
    """Which optimizer to build, once there are parameters to give it.

    ``kwargs`` may hold ``l1`` besides: the weight of the sum of absolute parameters that :meth:`Learner.minimise` adds
    to what it minimises.

    Raises:
        TypeError: on calling, when the optimizer does not know one of ``kwargs``.
    """

    cls: type[Optimizer] = torch.optim.Adam
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, params: Iterable[nn.Parameter], lr: float) -> Optimizer:
        kwargs: dict[str, Any] = {"lr": lr, **self.kwargs}
        l1 = kwargs.pop("l1", 0.0)
        if self.cls in _FUSED and not kwargs.keys() & {"fused", "foreach", "capturable", "differentiable"}:
            kwargs["fused"] = True  # one kernel for all parameters
            if self.cls is not torch.optim.SGD:
                kwargs["lr"] = torch.tensor(float(kwargs["lr"]))  # a schedule moves it without recompiling
        optimizer = self.cls(params, **kwargs)
        for group in optimizer.param_groups if l1 else ():
            group["l1"] = l1
        return optimizer


@dataclass(frozen=True)
class LearnerRecipe:
    """All that it takes to build a learner, here or in another process: it can be pickled."""

    learner_class: "type[Learner]"
    make_policy: Callable[[], Any]
    make_optimizer: OptimizerRecipe
    lr: float
    values: Mapping[str, Any]
    """Those hyper-parameters of the algorithm that the learner reads."""

    def __call__(self) -> "Learner":
        return self.learner_class(self)


@torch.no_grad()
def clip_gradients(grads: list[Tensor], max_norm: Tensor | float) -> None:
    """Scale gradients down in place so that their global norm is at most ``max_norm`` (Pascanu et al. 2013).

    Args:
        grads: of any shapes.
        max_norm: a number, or such a 0-d tensor: then nothing waits for the device.
    """
    norm = torch.stack(torch._foreach_norm(grads)).norm()
    torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))


class Learner(nn.Module):
    """Networks, their optimizers, and one rule to improve them.

    A subclass declares the hyper-parameters that it reads (:data:`Tunable`), names the networks that have an optimizer
    each (:attr:`optimized`) and writes ``gradient_step(batch) -> Update``; one that does more than that step writes
    :meth:`update`, which hands it a batch by :meth:`run`. A gradient step computes what its losses need once and hands
    it to methods that state them, ``..._objective(batch, ...) -> Objective``. To add a term, a subclass extends one of
    those::

        class Conservative(SACLearner):
            def critic_objective(self, batch, q, target):
                actions = 2 * torch.rand_like(batch.actions) - 1
                gap = self.policy.critic.q_values(batch.observations, actions).logsumexp(1) - q.mean(1)
                return super().critic_objective(batch, q, target).plus(gap.sum(), gap=gap.detach().mean())

    Args:
        recipe: of the policy and its tunable hyper-parameters; without one, a subclass makes them itself.
    """

    policy: Policy
    gradient_step: Callable[..., Any]
    """``(batch, *static)``: improves the networks. A method of each subclass that has one; without Python branches on
    values of tensors or step counts."""
    steps: int
    """Calls of :meth:`update` so far."""
    precision: str = "float32"
    """Of the layers' products in what :meth:`run` calls: see :data:`~polyak.nn.precision.PRODUCTS_IN`."""
    optimized: ClassVar[tuple[str, ...]] = ()
    """Networks of the policy that have an optimizer each, or ``"policy"``: all of it has one."""
    steps_are_shared: ClassVar[bool] = True
    """Whether all that it learns goes through :meth:`learn`, so that several learners can share it."""
    estimates_itself: ClassVar[bool] = False
    """Whether it estimates targets and advantages of rollouts itself, as it learns from them."""
    counters: ClassVar[frozenset[str]] = frozenset({"steps", "_rates"})
    """Plain attributes that move from step to step, and that nothing reads that :meth:`run` calls."""
    run: Callable[..., Any]
    """``(method, batch, *static)``: calls one of the learner's own methods on a batch, as a compiled program where an
    engine has one, else :meth:`eagerly`. The method returns tensors, in named tuples and dicts, and has no Python
    branches on values of tensors or step counts; ``batch`` may be one that is still to be gathered; ``static`` are
    plain values, for each of which there is another program."""
    learn_all: Callable[[Iterable[Any]], Iterable[Update]]
    """Updates from one batch after another, until one is skipped: :meth:`updates`, or that of fellows."""
    engine: Executor | None
    """Compiles what :attr:`run` calls; None: nothing is compiled."""
    rows_of: Callable[[Any], Any]
    """Makes what a memory hands out into the rows that methods read: gathers late batches, cuts sequences."""
    group: Group | None
    """The learners with which this one learns as one; a copy of a learner is in no group."""
    fellows: Fellows | None
    """Those of them that follow what this one does: see :meth:`lead`."""
    average: Average | None
    """Of the policy's weights, where a callback has asked for it: see :meth:`add_average`."""
    limit = staticmethod(clip_gradients)
    """``(gradients, most)``: limits gradients in place, here the norm of all together. A subclass may do otherwise."""

    def __init__(self, recipe: LearnerRecipe | None = None) -> None:
        super().__init__()
        keep_plain_names(self)
        self.steps = 0
        self.optimizers: dict[str, Optimizer] = {}
        self._owners: dict[str, nn.Module] = {}
        self.tunables: dict[str, Any] = {}
        self._rates: Any = None
        """The rate that optimizers have got, and what they had when they had it; ``None``: they are to get it again."""
        self.engine = self.group = self.average = None
        self.rows_of = gathered
        self.run_by(None)
        self.lead(None)
        if recipe is not None:
            self.policy = recipe.make_policy()
            self.add_tunables(**{name: value for name, value in recipe.values.items() if not isinstance(value, str)})
            for name in self.optimized:
                part = self.policy if name == "policy" else self.policy.get_submodule(name)
                self.add_optimizer(name, part, recipe.make_optimizer, recipe.lr)

    def run_by(self, run: Callable[..., Any] | None) -> None:
        """Call methods by ``run(method, batch, *static)`` from now on; None: line by line."""
        self.run = self.eagerly if run is None else run

    def lead(self, fellows: Fellows | None) -> None:
        """Share each minibatch with learners elsewhere from now on; None: learn from all of it here."""
        self.fellows = fellows
        self.learn_all = self.updates if fellows is None else fellows.update

    def learn(self, batch: Any) -> Update:
        """:meth:`update` on a batch, of which fellows take their shares."""
        (shared,) = self.learn_all([batch])
        return shared

    def updates(self, batches: Iterable[Any]) -> Iterator[Update]:
        """:meth:`update` on one batch after another, until one is skipped."""
        for batch in batches:
            update = self.update(batch)
            yield update
            if update.skipped is not None and bool(update.skipped):
                return

    def update(self, batch: Any) -> Update:
        """Learn from one minibatch: here one gradient step. Learners of a group call it at the same time."""
        self.steps += 1
        update: Update = self.run(self.gradient_step, batch)
        return update

    @property
    def rows_together(self) -> int:
        """How many rows of a batch after one another are one sequence."""
        return 1

    @property
    def gathers_late(self) -> bool:
        """Whether gradient steps run as programs, which gather the rows of a minibatch as they read them."""
        return self.engine is not None and self.engine.compiles

    def together(self, method: str) -> None:
        """Call a method without arguments, here and where fellows are."""
        if self.fellows is None:
            getattr(self, method)()
        else:
            self.fellows.call(method)

    def share(self, batch: Any, rank: int, size: int) -> Any:
        """The rows of a batch that one of several learners makes its step on: here along the first axis.

        Args:
            batch: gathered, or rows of a rollout.
            rank: which of the learners, from 0.
            size: how many there are.
        """
        if isinstance(batch, RolloutRows):
            own = share_of(len(batch.rows), rank, size, self.rows_together)
            return batch._replace(rows=batch.rows[own.to(batch.rows.device)])
        first = next(column for column in batch if column is not None)
        rows = share_of(len(next(leaves(first))), rank, size, self.rows_together)
        return each(batch, lambda column: column.index_select(0, rows.to(column.device)))

    def eagerly(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """As :attr:`run`, line by line."""
        with PRODUCTS_IN[self.precision]():
            return method(self.rows_of(batch), *static)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.counters:  # at every step: a module would ask first whether it is a parameter or a module
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    # -- optimizers ----------------------------------------------------------------------------------------------------

    def add_optimizer(
        self,
        name: str,
        source: nn.Module | Iterable[nn.Parameter],
        recipe: OptimizerRecipe,
        lr: float,
        owner: nn.Module | None = None,
    ) -> None:
        """Give parameters an optimizer that :meth:`minimise` knows as ``name``.

        A module that brings an ``optimizer`` of its own, as a user's policy may, keeps it.

        Args:
            name: for :meth:`minimise` and in saved files.
            source: a module, or some parameters.
            recipe: what to build.
            lr: learning rate.
            owner: the module that also gets it as its ``optimizer`` attribute, where users of Stable-Baselines3 look
                for it; ``source`` itself if that is a module.
        """
        params = source.parameters() if isinstance(source, nn.Module) else source
        if owner is None and isinstance(source, nn.Module):
            owner = source
        brought = getattr(owner, "optimizer", None)
        self.optimizers[name] = brought or recipe([p for p in params if p.requires_grad], lr)
        lighten(self.optimizers[name])
        if owner is not None:
            object.__setattr__(owner, "optimizer", self.optimizers[name])
            object.__setattr__(self, "_owners", {**self._owners, name: owner})

    def adopt_optimizers(self) -> None:
        """Use the optimizers that have been assigned to their modules (``model.policy.optimizer = ...``)."""
        for name, owner in self._owners.items():
            if (assigned := getattr(owner, "optimizer", None)) is not None and assigned is not self.optimizers[name]:
                self.optimizers[name] = assigned
                self._rates = None

    def minimise(
        self,
        name: str,
        loss: Tensor | Iterable[Tensor],
        max_grad_norm: Tensor | float | None = None,
        unless: Tensor | None = None,
        sparing: Iterable[Tensor] = (),
    ) -> None:
        """Differentiate, average over learners, clip, step: the one place where parameters change by gradient.

        Only the gradients of this optimizer's parameters are computed, so an actor loss costs no critic gradients.
        Parameters that are frozen (``requires_grad_(False)``) stay as they are, and with all of them nothing happens.

        Args:
            name: an optimizer added by :meth:`add_optimizer`.
            loss: [] scalar; or several, whose sum it is: each is differentiated before the next is asked for, so that
                what it takes to do so need not leave the processor's cache.
            max_grad_norm: clip the global gradient norm to this; ``None`` does not clip.
            unless: [] bool; where it is true, parameters and optimizer stay as they are.
            sparing: parameters of the optimizer that stay as if they were frozen.
        """
        optimizer = self.optimizers[name]
        spared = set(map(id, sparing))
        params = [p for group in optimizer.param_groups for p in group["params"]]
        free = [p for p in params if p.requires_grad and id(p) not in spared]
        for p in params:
            p.grad = None
        found = _gradients([loss] if isinstance(loss, Tensor) else loss, free)
        grads = self.averaged([*found.values()])
        for p, grad in zip(found, grads, strict=True):
            p.grad = grad
        if max_grad_norm is not None and grads:
            self.limit(grads, max_grad_norm)
        for group in [group for group in optimizer.param_groups if group.get("l1")]:  # after clipping, as weight decay
            _add_l1(group)
        if unless is None:
            optimizer.step()
        else:
            step_unless(optimizer, unless)

    def load_optimizer(self, name: str, state: dict[str, Any]) -> None:
        """Load an optimizer's state dict. A learning rate that is a tensor stays one, so that graphs see it move."""
        optimizer = self.optimizers[name]
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(state)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if isinstance(rate, Tensor):
                group["lr"] = rate.fill_(float(group["lr"]))
        self._rates = None

    # -- several learners ----------------------------------------------------------------------------------------------

    def join(self, group: Group) -> None:
        """Learn as one with others from now on; all of them must join at the same time. See
        :mod:`polyak.learning.data_parallel`.

        Raises:
            ValueError: their networks differ.
        """
        mine = torch.cat([tensor.detach().double().reshape(-1) for tensor in self.networks().values()])
        if not torch.equal(group.sum(mine.clone()), group.size * mine):
            raise ValueError(
                "the networks of the learners that join a group differ. Give all of them those of one: "
                "learner.load_networks(first.networks())."
            )
        self.group = group

    def averaged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Means over all learners of some tensors of one type, in one exchange; without a group, the tensors."""
        return list(tensors) if self.group is None or not tensors else self._means(self.group, tensors)

    @staticmethod
    def _means(group: Group, tensors: Sequence[Tensor]) -> list[Tensor]:
        total = group.sum(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]))
        means = (total / group.size).split([tensor.numel() for tensor in tensors])
        return [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]

    # -- tunables ------------------------------------------------------------------------------------------------------

    @classmethod
    def declared_tunables(cls) -> dict[str, Any]:
        """Name -> type of the hyper-parameters that the class declares as :data:`Tunable`."""
        learners = [base for base in reversed(cls.__mro__) if issubclass(base, Learner)]
        hints = {name: hint for base in learners for name, hint in _annotations(base).items()}
        return {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is Annotated}

    def add_tunables(self, **values: Any) -> None:
        """Set up hyper-parameters that may move during training, as :data:`Tunable` says.

        One that the class does not declare becomes a 0-d buffer if it is a float, else a plain attribute.
        """
        declared = self.declared_tunables()
        for name, value in values.items():
            kind = declared.get(name, Tensor if isinstance(value, float) else Any)
            if Tensor in (kind, *get_args(kind)) and value is not None:
                self.register_buffer(name, torch.tensor(float(value)))
            else:
                setattr(self, name, kind(value) if kind in (bool, int, float) else value)
            self.tunables[name] = value

    def set(self, **values: float) -> None:
        """Set tunable hyper-parameters; ``learning_rate`` reaches every optimizer. A value that has not changed costs
        one comparison.

        Raises:
            KeyError: a name that is not one of this learner.
        """
        for name, value in values.items():
            if name == "learning_rate":
                self._set_learning_rate(value)
            elif self.tunables[name] != value:
                self._set_tunable(name, value)

    def _set_tunable(self, name: str, value: Any) -> None:
        if (value is None) != (self.tunables[name] is None):
            delattr(self, name)
            self.add_tunables(**{name: value})
            if name in self._buffers and (parameter := next(self.parameters(), None)) is not None:
                setattr(self, name, self.get_buffer(name).to(parameter.device))
        elif name in self._buffers:
            self.get_buffer(name).fill_(value)
        else:
            setattr(self, name, value)
        self.tunables[name] = value

    def _set_learning_rate(self, value: float) -> None:
        """Give all optimizers their learning rate, also where it was set since, or another optimizer was assigned."""
        if self._rates != (value, self._present_rates()):
            self.adopt_optimizers()
            for optimizer in self.optimizers.values():
                set_rate(optimizer, value)
            self.tunables["learning_rate"], self._rates = value, (value, self._present_rates())

    def _present_rates(self) -> list[Any]:
        """Which optimizers modules have, and the rates of those in use: numbers, and of tensors which they are and how
        often they have changed."""
        owned = [id(getattr(owner, "optimizer", None)) for owner in self._owners.values()]
        rates = [group["lr"] for optimizer in self.optimizers.values() for group in optimizer.param_groups]
        return owned + [(id(rate), rate._version) if isinstance(rate, Tensor) else rate for rate in rates]

    # -- state --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "group": None, "fellows": None, "learn_all": self.updates}

    def networks(self) -> dict[str, Tensor]:
        """Every tensor that was learned or follows what was learned: policy, targets, temperature; no tunables."""
        found = {name: tensor for name, tensor in self.state_dict().items() if name not in self.tunables}
        if self.average is not None:
            found |= {f"{_AVERAGE}{name}": tensor for name, tensor in self.average.state_dict().items()}
        return found

    def add_average(self) -> None:
        """Have an average of the policy's weights, unless there is one. It is no module of the learner's, since
        programs have no use for it."""
        if self.average is None:
            object.__setattr__(self, "average", Average(self.policy))

    def load_networks(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`networks` returned.

        Raises:
            RuntimeError: names or shapes differ; torch's message lists them. Nothing has changed then.
        """
        tensors = {plain_name(name): tensor for name, tensor in tensors.items()}
        if f"{_AVERAGE}acts" in tensors:
            self.add_average()
        expected = self.networks()
        wrong = [
            f"{name}: file {tuple(tensors[name].shape)}, model {tuple(expected[name].shape)}"
            for name in expected.keys() & tensors.keys()
            if tensors[name].shape != expected[name].shape
        ]
        missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
        if wrong or missing or unknown:
            raise RuntimeError(
                f"these weights do not fit the model: missing {missing}, unexpected {unknown}, wrong shape {wrong}. "
                "Check policy_kwargs and the spaces."
            )
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith(_AVERAGE)}
        self.load_state_dict(own, strict=False)
        if self.average is not None:
            others = tensors.keys() - own.keys()
            self.average.load_state_dict({name.removeprefix(_AVERAGE): tensors[name] for name in others})


def _gradients(losses: Iterable[Tensor], params: Sequence[Tensor]) -> dict[Any, Tensor]:
    """Of the sum of some losses, one after another, by parameter; those that no loss depends on are left out."""
    total: dict[Any, Tensor] = {}
    for loss in losses:
        found = torch.autograd.grad(loss, params, allow_unused=True) if params else ()
        for p, grad in zip(params, found, strict=True):
            if grad is not None:
                total[p] = total[p] + grad if p in total else grad
    return total


def step_unless(optimizer: Optimizer, unless: Tensor) -> None:
    """A step of an optimizer, or none where ``unless`` [] bool is true, which a program decides for itself."""
    if isinstance(optimizer, TracedOptimizer):
        optimizer.step(unless)
    elif not unless:
        optimizer.step()


def _add_l1(group: Mapping[str, Any]) -> None:
    """Add the gradient of the sum of absolute parameters to those of a group."""
    for p in group["params"]:
        if p.grad is not None:
            p.grad = p.grad + group["l1"] * p.detach().sign()


def set_rate(optimizer: Optimizer, value: float) -> None:
    """Give an optimizer another learning rate. One that is a tensor stays one, so that graphs see it move; one that was
    replaced by a number becomes that tensor again."""
    first = optimizer.defaults.get("lr")
    for group in optimizer.param_groups:
        if isinstance(first, Tensor) and not isinstance(group["lr"], Tensor):
            group["lr"] = first
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def _annotations(cls: type) -> dict[str, Any]:
    """A class's own; only those that are written as texts are evaluated."""
    own = inspect.get_annotations(cls)
    return inspect.get_annotations(cls, eval_str=True) if any(isinstance(a, str) for a in own.values()) else own
