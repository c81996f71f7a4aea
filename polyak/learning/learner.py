"""The learner: networks, optimizers and the update rule.

A learner handles tensors only: never an environment, a logger, a buffer or numpy. So the same object can run eagerly in
this process, as a compiled program, or in another process.
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
"""Log name -> detached 0-d tensor. They stay on the device until they are logged."""

T = TypeVar("T")
Tunable = Annotated[T, "tunable"]
"""``tau: Tunable[Tensor]`` in a learner declares that it reads the algorithm's hyper-parameter ``tau``, which may
change during training, by schedule, callback or assignment. ``Tunable[Tensor]`` is a 0-d buffer, so that it can change
without recompilation; ``Tunable[int]`` and others are plain attributes, which Python control flow may read."""


class Objective(NamedTuple):
    """A loss and its metrics."""

    loss: Tensor
    """[] the loss to minimise."""
    metrics: Metrics = {}
    """Metrics besides the loss."""
    td_error: Tensor | None = None
    """[B] absolute temporal-difference error of each row, detached."""

    def plus(self, term: Tensor, **metrics: Tensor) -> "Objective":
        """Returns the objective with one more term [] in the loss, and more metrics."""
        return self._replace(loss=self.loss + term, metrics={**self.metrics, **metrics})


class Update(NamedTuple):
    """The result of one update."""

    metrics: Metrics
    td_error: Tensor | None = None
    """[B] absolute temporal-difference error of each row, for prioritised replay; None if there is none."""
    skipped: Tensor | None = None
    """[] bool: early stopping was triggered, and nothing was changed; None: no early stopping."""


class Executor(Protocol):
    """Runs a learner's methods other than eagerly, as the engine does; see :meth:`Learner.run_by`."""

    compiles: bool
    """Whether methods run as programs if possible."""
    learned: bool
    """Whether a method has run with gradients enabled."""


spare_compiler()
_AVERAGE = "average."
"""Prefix of the average's tensors among those of the networks."""
_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


@dataclass(frozen=True)
class OptimizerRecipe:
    """The recipe of an optimizer, built when its parameters exist.

    ``kwargs`` may also hold ``l1``: the weight of an L1 penalty on the parameters, which :meth:`Learner.minimise` adds.

    Raises:
        TypeError: when called, if the optimizer does not take one of ``kwargs``.
    """

    cls: type[Optimizer] = torch.optim.Adam
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, params: Iterable[nn.Parameter], lr: float) -> Optimizer:
        kwargs: dict[str, Any] = {"lr": lr, **self.kwargs}
        l1 = kwargs.pop("l1", 0.0)
        if self.cls in _FUSED and not kwargs.keys() & {"fused", "foreach", "capturable", "differentiable"}:
            kwargs["fused"] = True  # one kernel for all parameters
            if self.cls is not torch.optim.SGD:
                kwargs["lr"] = torch.tensor(float(kwargs["lr"]))  # schedules change it without recompilation
        optimizer = self.cls(params, **kwargs)
        for group in optimizer.param_groups if l1 else ():
            group["l1"] = l1
        return optimizer


@dataclass(frozen=True)
class LearnerRecipe:
    """A picklable recipe of a learner, which can be built in this process or another."""

    learner_class: "type[Learner]"
    make_policy: Callable[[], Any]
    make_optimizer: OptimizerRecipe
    lr: float
    values: Mapping[str, Any]
    """The hyper-parameters of the algorithm that the learner reads."""

    def __call__(self) -> "Learner":
        return self.learner_class(self)


@torch.no_grad()
def clip_gradients(grads: list[Tensor], max_norm: Tensor | float) -> None:
    """Scale gradients in place so that their global norm is at most ``max_norm`` (Pascanu et al. 2013).

    Args:
        grads: of any shapes.
        max_norm: a number, or a 0-d tensor, which needs no synchronisation with the device.
    """
    norm = torch.stack(torch._foreach_norm(grads)).norm()
    torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))


class Learner(nn.Module):
    """Base class of learners: networks, their optimizers, and one update rule.

    A subclass declares the hyper-parameters that it reads (:data:`Tunable`), names the networks that have an optimizer
    each (:attr:`optimized`) and defines ``gradient_step(batch) -> Update``; one that does more than that step defines
    :meth:`update`, which passes it a batch by :meth:`run`. A gradient step computes what its losses share once and
    passes it to the methods that define them, ``..._objective(batch, ...) -> Objective``. To add a term, a subclass
    extends one of those::

        class Conservative(SACLearner):
            def critic_objective(self, batch, q, target):
                actions = 2 * torch.rand_like(batch.actions) - 1
                gap = self.policy.critic.q_values(batch.observations, actions).logsumexp(1) - q.mean(1)
                return super().critic_objective(batch, q, target).plus(gap.sum(), gap=gap.detach().mean())

    Args:
        recipe: of the policy and its tunable hyper-parameters; without it, a subclass creates them itself.
    """

    policy: Policy
    gradient_step: Callable[..., Any]
    """``(batch, *static)``: makes one gradient step. Defined by each subclass that uses it; without Python branches on
    values of tensors or step counts."""
    steps: int
    """Calls of :meth:`update` so far."""
    precision: str = "float32"
    """Precision of the layers' products in methods called by :meth:`run`: see :data:`~polyak.nn.precision.PRODUCTS_IN`.
    """
    optimized: ClassVar[tuple[str, ...]] = ()
    """Networks of the policy that have an optimizer each; ``"policy"`` is one optimizer for the whole policy."""
    steps_are_shared: ClassVar[bool] = True
    """Whether all its updates go through :meth:`learn`, so that several learners can share them."""
    estimates_itself: ClassVar[bool] = False
    """Whether it estimates targets and advantages of rollouts itself during its updates."""
    counters: ClassVar[frozenset[str]] = frozenset({"steps", "_rates"})
    """Plain attributes that change from step to step, and that no method called by :meth:`run` reads."""
    run: Callable[..., Any]
    """``(method, batch, *static)``: calls one of the learner's own methods on a batch, as a compiled program if the
    engine has one, otherwise by :meth:`eagerly`. The method returns tensors, in named tuples and dicts, and has no
    Python branches on values of tensors or step counts; ``batch`` may be lazily gathered; each set of ``static`` plain
    values gets a program of its own."""
    learn_all: Callable[[Iterable[Any]], Iterable[Update]]
    """Makes updates on one batch after another, until one is skipped: :meth:`updates`, or that of :attr:`fellows`."""
    engine: Executor | None
    """Compiles the methods called by :attr:`run`; None: nothing is compiled."""
    rows_of: Callable[[Any], Any]
    """Converts a memory's batches to the rows that methods take: gathers lazy batches, cuts sequences."""
    group: Group | None
    """The group of data-parallel learners; a copy of a learner is in no group."""
    fellows: Fellows | None
    """Remote learners that follow this one's updates: see :meth:`lead`."""
    average: Average | None
    """The average of the policy's weights, if a callback requires it: see :meth:`add_average`."""
    limit = staticmethod(clip_gradients)
    """``(gradients, max_norm)``: clips gradients in place, by default by their global norm. Subclasses may override it.
    """

    def __init__(self, recipe: LearnerRecipe | None = None) -> None:
        super().__init__()
        keep_plain_names(self)
        self.steps = 0
        self.optimizers: dict[str, Optimizer] = {}
        self._owners: dict[str, nn.Module] = {}
        self.tunables: dict[str, Any] = {}
        self._rates: Any = None
        """The learning rate last set, and the optimizers' state at that time; ``None``: it must be set again."""
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
        """Call methods by ``run(method, batch, *static)`` from now on; None: eagerly."""
        self.run = self.eagerly if run is None else run

    def lead(self, fellows: Fellows | None) -> None:
        """Share each minibatch with remote learners from now on; None: learn from all rows locally."""
        self.fellows = fellows
        self.learn_all = self.updates if fellows is None else fellows.update

    def learn(self, batch: Any) -> Update:
        """Returns the result of :meth:`update` on a batch, of which remote learners take their shares."""
        (shared,) = self.learn_all([batch])
        return shared

    def updates(self, batches: Iterable[Any]) -> Iterator[Update]:
        """Yields the results of :meth:`update` on one batch after another, until one is skipped."""
        for batch in batches:
            update = self.update(batch)
            yield update
            if update.skipped is not None and bool(update.skipped):
                return

    def update(self, batch: Any) -> Update:
        """Learn from one minibatch, by default with one gradient step. Learners of a group call it at the same time."""
        self.steps += 1
        update: Update = self.run(self.gradient_step, batch)
        return update

    @property
    def rows_together(self) -> int:
        """The number of consecutive rows of a batch that form one sequence."""
        return 1

    @property
    def gathers_late(self) -> bool:
        """Whether gradient steps run as programs, which gather the rows of a minibatch themselves."""
        return self.engine is not None and self.engine.compiles

    def together(self, method: str) -> None:
        """Call a method without arguments, on this learner and on remote ones."""
        if self.fellows is None:
            getattr(self, method)()
        else:
            self.fellows.call(method)

    def share(self, batch: Any, rank: int, size: int) -> Any:
        """Returns the rows of a batch for one of several learners, by default along the first axis.

        Args:
            batch: gathered, or rows of a rollout.
            rank: index of the learner, from 0.
            size: number of learners.
        """
        if isinstance(batch, RolloutRows):
            own = share_of(len(batch.rows), rank, size, self.rows_together)
            return batch._replace(rows=batch.rows[own.to(batch.rows.device)])
        first = next(column for column in batch if column is not None)
        rows = share_of(len(next(leaves(first))), rank, size, self.rows_together)
        return each(batch, lambda column: column.index_select(0, rows.to(column.device)))

    def eagerly(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Call a method on a batch without the engine, as :attr:`run` does otherwise."""
        with PRODUCTS_IN[self.precision]():
            return method(self.rows_of(batch), *static)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.counters:  # set at every step: faster than nn.Module's checks
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
        """Create the optimizer ``name`` of some parameters, for :meth:`minimise`.

        A module with an ``optimizer`` attribute of its own, as a user's policy may have, keeps it.

        Args:
            name: for :meth:`minimise` and in saved files.
            source: a module, or some parameters.
            recipe: of the optimizer.
            lr: learning rate.
            owner: the module that also gets it as its ``optimizer`` attribute, as in Stable-Baselines3; by default
                ``source`` if that is a module.
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
        """Use optimizers that users have assigned to their modules (``model.policy.optimizer = ...``)."""
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
        """Differentiate, average over learners, clip and step: the only place where gradients change parameters.

        Only gradients of this optimizer's parameters are computed, so an actor loss costs no critic gradients. Frozen
        parameters (``requires_grad_(False)``) are unchanged; if all are frozen, nothing happens.

        Args:
            name: an optimizer added by :meth:`add_optimizer`.
            loss: [] scalar; or several, which are summed: each is differentiated before the next is computed, so that
                its activations can stay in the processor's cache.
            max_grad_norm: clip the global gradient norm to this; ``None`` does not clip.
            unless: [] bool; where true, parameters and optimizer are unchanged.
            sparing: parameters of the optimizer to treat as frozen.
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
        for group in [group for group in optimizer.param_groups if group.get("l1")]:  # not clipped, as weight decay
            _add_l1(group)
        if unless is None:
            optimizer.step()
        else:
            step_unless(optimizer, unless)

    def load_optimizer(self, name: str, state: dict[str, Any]) -> None:
        """Load an optimizer's state dict. A learning rate that is a tensor stays a tensor, so that graphs follow it."""
        optimizer = self.optimizers[name]
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(state)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if isinstance(rate, Tensor):
                group["lr"] = rate.fill_(float(group["lr"]))
        self._rates = None

    # -- several learners ----------------------------------------------------------------------------------------------

    def join(self, group: Group) -> None:
        """Join a group of data-parallel learners; all of them must join at the same time. See
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
        """Returns the means over all learners of tensors of one type, in one exchange; without a group, the tensors."""
        return list(tensors) if self.group is None or not tensors else self._means(self.group, tensors)

    @staticmethod
    def _means(group: Group, tensors: Sequence[Tensor]) -> list[Tensor]:
        total = group.sum(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]))
        means = (total / group.size).split([tensor.numel() for tensor in tensors])
        return [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]

    # -- tunables ------------------------------------------------------------------------------------------------------

    @classmethod
    def declared_tunables(cls) -> dict[str, Any]:
        """Returns name -> type of the hyper-parameters that the class declares as :data:`Tunable`."""
        learners = [base for base in reversed(cls.__mro__) if issubclass(base, Learner)]
        hints = {name: hint for base in learners for name, hint in _annotations(base).items()}
        return {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is Annotated}

    def add_tunables(self, **values: Any) -> None:
        """Set up hyper-parameters that may change during training: see :data:`Tunable`.

        An undeclared one becomes a 0-d buffer if it is a float, otherwise a plain attribute.
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
        """Set tunable hyper-parameters; ``learning_rate`` applies to every optimizer. An unchanged value costs one
        comparison.

        Raises:
            KeyError: the learner has no hyper-parameter of that name.
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
        """Set the learning rate of all optimizers, even if it was changed or another optimizer was assigned meanwhile."""
        if self._rates != (value, self._present_rates()):
            self.adopt_optimizers()
            for optimizer in self.optimizers.values():
                set_rate(optimizer, value)
            self.tunables["learning_rate"], self._rates = value, (value, self._present_rates())

    def _present_rates(self) -> list[Any]:
        """Returns the identities of the modules' optimizers, and the rates in use: numbers, or identity and version of
        tensors."""
        owned = [id(getattr(owner, "optimizer", None)) for owner in self._owners.values()]
        rates = [group["lr"] for optimizer in self.optimizers.values() for group in optimizer.param_groups]
        return owned + [(id(rate), rate._version) if isinstance(rate, Tensor) else rate for rate in rates]

    # -- state --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "group": None, "fellows": None, "learn_all": self.updates}

    def networks(self) -> dict[str, Tensor]:
        """Returns every learned or derived tensor: policy, targets, temperature; without tunables."""
        found = {name: tensor for name, tensor in self.state_dict().items() if name not in self.tunables}
        if self.average is not None:
            found |= {f"{_AVERAGE}{name}": tensor for name, tensor in self.average.state_dict().items()}
        return found

    def add_average(self) -> None:
        """Create the average of the policy's weights, unless it exists. It is no submodule of the learner, since
        programs do not use it."""
        if self.average is None:
            object.__setattr__(self, "average", Average(self.policy))

    def load_networks(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the tensors that :meth:`networks` returned.

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
    """Returns the gradients of the sum of some losses, one after another, by parameter; parameters without one are left
    out."""
    total: dict[Any, Tensor] = {}
    for loss in losses:
        found = torch.autograd.grad(loss, params, allow_unused=True) if params else ()
        for p, grad in zip(params, found, strict=True):
            if grad is not None:
                total[p] = total[p] + grad if p in total else grad
    return total


def step_unless(optimizer: Optimizer, unless: Tensor) -> None:
    """Step an optimizer unless ``unless`` [] bool is true; inside a program this needs no branch."""
    if isinstance(optimizer, TracedOptimizer):
        optimizer.step(unless)
    elif not unless:
        optimizer.step()


def _add_l1(group: Mapping[str, Any]) -> None:
    """Add the gradient of the L1 penalty to the gradients of a group."""
    for p in group["params"]:
        if p.grad is not None:
            p.grad = p.grad + group["l1"] * p.detach().sign()


def set_rate(optimizer: Optimizer, value: float) -> None:
    """Set an optimizer's learning rate. A rate that is a tensor stays a tensor, so that graphs follow it; one that was
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
    """Returns a class's own annotations; only those written as strings are evaluated."""
    own = inspect.get_annotations(cls)
    return inspect.get_annotations(cls, eval_str=True) if any(isinstance(a, str) for a in own.values()) else own
