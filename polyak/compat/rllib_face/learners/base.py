"""A learner that programs subclass by RLlib's API: losses of modules, optimizers, gradients, and hooks around them.

A subclass that overrides only the hooks makes the gradient steps of polyak's own learner, also as compiled programs.
One that overrides losses, gradients or optimizers makes each step as RLlib does, line by line: forward passes of the
modules, :meth:`TorchLearner.compute_losses`, gradients, and a step of each optimizer.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyak.arrays import mapped
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.batches import LearnerConnectorPipeline, NumpyToTensor
from polyak.compat.rllib_face.connectors.pieces import Rewriting
from polyak.compat.rllib_face.metrics import MetricsLogger
from polyak.compat.rllib_face.models.exploration import PointSchedule
from polyak.compat.rllib_face.models.multi import MultiRLModule
from polyak.compat.rllib_face.models.rl_module import SelfSupervisedLossAPI
from polyak.compat.sb3_face.overrides import changed
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Learner, LearnerRecipe, Update, set_rate
from polyak.nn.errors import PolicyError
from polyak.warning import advise

Batch = dict[str, Any]
Gradients = dict[nn.Parameter, Tensor | None]
SAMPLED = "num_env_steps_sampled_lifetime"
"""The key of the environment steps so far in ``timesteps``."""
LOSSES = (
    *("should_module_be_updated", "compute_losses", "compute_loss_for_module", "compute_gradients"),
    *("postprocess_gradients", "postprocess_gradients_for_module", "apply_gradients"),
)
OPTIMIZERS = ("configure_optimizers", "configure_optimizers_for_module")


class Registered(NamedTuple):
    """An optimizer of a program's own."""

    module_id: str
    name: str
    optimizer: Optimizer
    parameters: list[nn.Parameter]
    rate: Any
    """Its learning rate: a number, or points [[environment step, value], ...]; ``None``: unchanged."""


class TorchLearner(Learner):
    """The base class of learners with RLlib's API.

    Args:
        recipe: polyak's recipe of policy, optimizer and hyper-parameters.

    Attributes:
        metrics: the logger of a subclass: ``self.metrics.log_value((module_id, name), value, window=1)`` is reported as
            ``learners/module_id/name``.
        beside: the modules that only the learner has, by name.
        pipeline: the pieces; ``None``: there are none.
        batches: name of a module -> the columns of the last update.
    """

    config: ClassVar[Any] = None
    """The algorithm's config, frozen."""
    framework = "torch"
    reasons: ClassVar[Mapping[str, str]] = {}
    """Further methods that are not called, and why."""
    updates_by_batch: ClassVar[bool] = True
    """Whether an update, around which a program's methods are called, is one gradient step."""
    pipeline: LearnerConnectorPipeline | None = None
    batches: Mapping[str, Batch] = {}

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.metrics = MetricsLogger()
        self.counts: Callable[[], int] = lambda: 0
        self._noted: dict[str, Tensor] = {}
        self._registered: dict[str, Registered] = {}
        self._schedulers: list[Any] = []
        self._sample: Any = None
        self.beside = nn.ModuleDict()
        self._plain: str | None = None
        self.build()
        self._plain = self._why_plainly()
        if self._plain is not None:
            advise("own losses", f"{self._plain} runs as it is written, and not as a compiled program.")

    @classmethod
    def face(cls) -> type[TorchLearner]:
        """Returns the class of this package that a program's own derives from."""
        return next(base for base in cls.__mro__ if base.__module__.startswith(__package__ or ""))

    @classmethod
    def own(cls) -> list[str]:
        """Returns the methods of losses, gradients and optimizers that a program has written."""
        return changed(cls, cls.face(), [*LOSSES, *OPTIMIZERS])

    def build(self) -> None:
        """Make modules, pieces and optimizers; called once. A subclass calls ``super().build()``, too."""
        if self.config.shown_to_pieces is not None:
            agents = self.module[DEFAULT_MODULE_ID]
            spaces = agents.observation_space, agents.action_space
            for name, spec in self.config.learner_only_specs().items():
                self.beside[name] = spec.with_spaces(*spaces).build()
            self.pipeline = self.config.build_learner_connector(*spaces, device=self.device)
            for piece in self.pipeline.connectors if self.config.shown_to_pieces == "rollouts" else ():
                if type(piece) is NumpyToTensor:
                    piece.read = self._read
        if self.beside or changed(type(self), self.face(), OPTIMIZERS):
            first = dict(self.optimizers)
            self.optimizers.clear()
            self._owners.clear()
            self.configure_optimizers()
            fix = "it registers no optimizer. Call register_optimizer(module_id=..., optimizer=..., params=...)."
            require(bool(self.optimizers), "learner_class", type(self), fix)
            for owner in (self.policy, *self.policy.modules()):
                if getattr(owner, "optimizer", None) in first.values():
                    object.__setattr__(owner, "optimizer", next(iter(self.optimizers.values())))
        kinds = self.config._torch_lr_scheduler_classes or ()
        self._schedulers = [kind(one) for one in self.optimizers.values() for kind in kinds]

    def _read(self, observations: Any) -> Any:
        """Converts observations of environments to the inputs of modules."""
        policy: Any = self.policy
        turned, read = policy._turned, policy.preprocess
        return read(observations.movedim(-1, 1)).movedim(1, -1) if turned else read(observations)

    def shutdown(self) -> None:
        """Called when the algorithm is stopped; does nothing by default."""

    # -- modules -------------------------------------------------------------------------------------------------------

    @property
    def module(self) -> MultiRLModule:
        """The modules that learn, by name, themselves and not copies.

        Raises:
            AttributeError: the networks are polyak's own.
        """
        module = getattr(self.policy, "rl_module", None)
        if module is None:
            raise AttributeError(f"{type(self).__name__} trains networks of polyak's: use algo.get_module().")
        others: dict[str, Any] = dict(self.beside.items())
        return MultiRLModule({DEFAULT_MODULE_ID: module, **others})

    _module = module

    @property
    def _learner_connector(self) -> LearnerConnectorPipeline:
        """The pieces before it, RLlib's default ones among them, which :meth:`build` may change.

        Raises:
            NotImplementedError: it passes none.
        """
        if self.pipeline is None:
            raise NotImplementedError(f"{type(self).__name__} passes no pieces: those of PPO and DQN do.")
        return self.pipeline

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    _device = device

    def get_parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """Returns the parameters of a module or a part of one."""
        return list(module.parameters())

    def get_param_ref(self, param: nn.Parameter) -> nn.Parameter:
        """Returns the key of a parameter in a dict of gradients: itself."""
        return param

    # -- optimizers ----------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> None:
        """Register optimizers, here :meth:`configure_optimizers_for_module` of each module."""
        for name in self.module:
            self.configure_optimizers_for_module(module_id=name, config=self.config.get_config_for_module(name))

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register the optimizers of a module: here Adam on all its parameters, with the config's ``lr``."""
        params = self.get_parameters(self.module[module_id])
        config = self.config if config is None else config
        optimizer = torch.optim.Adam(params, eps=config.get("adam_epsilon", 1e-8))
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params, lr_or_lr_schedule=config.lr)

    def register_optimizer(
        self,
        *,
        module_id: str = DEFAULT_MODULE_ID,
        optimizer_name: str = "default_optimizer",
        optimizer: Optimizer,
        params: Sequence[nn.Parameter],
        lr_or_lr_schedule: Any = None,
    ) -> None:
        """Register an optimizer, which then makes steps.

        Args:
            module_id: name of the module.
            optimizer_name: name of the optimizer within the module.
            optimizer: the optimizer.
            params: its parameters.
            lr_or_lr_schedule: its learning rate, a number or points [[environment step, value], ...], which is set
                after each update; ``None``: the optimizer's own.

        Raises:
            HyperparameterError: the name is taken, or ``params`` are not the optimizer's.
        """
        name = f"{module_id}_{optimizer_name}"
        require(name not in self.optimizers, "optimizer_name", optimizer_name, "there is one of that name.")
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        fix = "give the optimizer the same parameters."
        require(held == {id(p) for p in params}, "params", f"{len(params)} parameters", fix)
        self.optimizers[name] = optimizer
        self._registered[name] = Registered(module_id, optimizer_name, optimizer, list(params), lr_or_lr_schedule)
        self._move_rates(0)

    def _move_rates(self, steps: int) -> None:
        for one in self._registered.values():
            if one.rate is not None:
                set_rate(one.optimizer, PointSchedule(one.rate).update(steps))

    def _set_learning_rate(self, value: float) -> None:
        if self._registered:
            self.adopt_optimizers()
        elif not self._schedulers:
            super()._set_learning_rate(value)

    def get_optimizer(self, module_id: str = DEFAULT_MODULE_ID, optimizer_name: str = "default_optimizer") -> Optimizer:
        """Returns one of a module's optimizers.

        Raises:
            KeyError: there is no such optimizer.
        """
        return dict(self.get_optimizers_for_module(module_id))[optimizer_name]

    def get_optimizers_for_module(self, module_id: str = DEFAULT_MODULE_ID) -> list[tuple[str, Optimizer]]:
        """Returns the optimizers of a module, with their names."""
        if not self._registered:
            return [("default_optimizer", one) for one in self.optimizers.values()]
        own = [one for one in self._registered.values() if one.module_id == module_id]
        return [(one.name, one.optimizer) for one in own]

    @property
    def names_optimizers(self) -> bool:
        """Whether the rates of its optimizers are other than the algorithm's one."""
        return bool(self._registered or self._schedulers)

    def rates(self, module_id: str) -> dict[str, float]:
        """Returns the learning rates of a module's optimizers, as they are reported."""
        optimizers = self.get_optimizers_for_module(module_id)
        return {f"{name}_learning_rate": float(one.param_groups[0]["lr"]) for name, one in optimizers}

    def filter_param_dict_for_optimizer(self, param_dict: Gradients, optimizer: Optimizer) -> Gradients:
        """Returns the entries of a dict that are of an optimizer's parameters."""
        return {p: param_dict[p] for group in optimizer.param_groups for p in group["params"] if p in param_dict}

    # -- hooks around updates ------------------------------------------------------------------------------------------

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Called before each update; ``timesteps`` has the environment steps so far as
        ``"num_env_steps_sampled_lifetime"``. Does nothing by default."""

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Called after each update. A subclass calls ``super()``, which moves the learning rates of registered
        optimizers, or lets the config's schedulers do so."""
        for scheduler in self._schedulers:
            scheduler.step()
        if not self._schedulers:
            self._move_rates(timesteps[SAMPLED])

    @contextmanager
    def _one_update(self, timesteps: Mapping[str, Any] | None = None) -> Iterator[None]:
        """The context of an update."""
        given = {name: value for name, value in (timesteps or {}).items() if value is not None}
        timesteps = {SAMPLED: self.counts(), **given}
        self.before_gradient_based_update(timesteps=timesteps)
        yield
        self.after_gradient_based_update(timesteps=dict(timesteps))

    def update(self, batch: Any) -> Update:
        if not self.updates_by_batch:
            return super().update(batch)
        with self._one_update():
            return super().update(batch)

    # -- one gradient step ---------------------------------------------------------------------------------------------

    def _why_plainly(self) -> str | None:
        """Returns the reason for running gradient steps line by line; ``None`` if they may be compiled programs."""
        if own := self.own():
            return f"{type(self).__name__}.{own[0]}() of learner_class"
        if self.beside:
            return f"a learner with the module {next(iter(self.beside))!r}"
        if self._schedulers:
            return "a learner with schedulers of torch's"
        module = getattr(self.policy, "rl_module", None)
        if isinstance(module, SelfSupervisedLossAPI):
            return "compute_self_supervised_loss() of the module"
        if module is not None and getattr(self.policy, "_state", None):
            return f"the recurrent {type(module).__name__}"
        own = [] if self.pipeline is None else [one for one in self.pipeline.own if not isinstance(one, Rewriting)]
        if own:
            return f"a learner behind {type(own[0]).__name__}"
        return None

    def run_by(self, run: Callable[..., Any] | None) -> None:
        super().run_by(run)
        self.run = partial(self._run_plainly, self.run)

    def _run_plainly(self, run: Callable[..., Any], method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Call a method by ``run``, or line by line if a program's parts require it."""
        plainly = method.__name__ == "gradient_step" and self.plainly
        return self.eagerly(method, batch, *static) if plainly else run(method, batch, *static)

    @property
    def plainly(self) -> bool:
        """Whether gradient steps run line by line."""
        return self._plain is not None

    def passed(self, episodes: list[Any]) -> dict[str, Batch]:
        """Returns the pieces' output for episodes: name of a module -> its columns [R, ...]."""
        return self._learner_connector.batched(episodes, self.device, rl_module=self.module, metrics=self.metrics)

    def learn_from_episodes(
        self,
        episodes: list[Any],
        *,
        timesteps: Mapping[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
    ) -> dict[str, list[Tensor]]:
        """Make gradient steps on the pieces' output for episodes.

        Args:
            episodes: the episodes, which are not changed.
            timesteps: see :meth:`before_gradient_based_update`; ``None``: the steps so far.
            num_epochs: passes over all rows. The last minibatch is filled up with rows of another pass.
            minibatch_size: rows of a gradient step; for recurrent modules the steps of its sequences; ``None``: all.
            shuffle_batch_per_epoch: shuffle the rows in each pass, if there are several.

        Returns:
            the metrics of each gradient step, by name.
        """
        metrics: dict[str, list[Tensor]] = {}
        with self._one_update(timesteps):
            self.batches = batches = self.passed(list(episodes))
            rewards = batches[DEFAULT_MODULE_ID][Columns.REWARDS]
            rows, steps = len(rewards), rewards.shape[1] if rewards.ndim > 1 else 1
            size = rows if minibatch_size is None else max(1, minibatch_size // steps)
            for index in in_minibatches(rows, size, num_epochs, shuffle_batch_per_epoch):
                self.steps += 1
                pick = slice(None) if index is None else index
                chosen: Any = mapped(lambda part, pick=pick: part[pick], batches)
                for name, value in self.own_step(chosen).metrics.items():
                    metrics.setdefault(name, []).append(value)
        return metrics

    def own_step(self, batches: dict[str, Batch], sample: Any = None) -> Update:
        """Makes a gradient step by a program's own methods.

        Args:
            batches: name of a module -> its columns.
            sample: the minibatch of the agent's module in the form of polyak's learner, for losses that need it.
        """
        self._sample, self._noted = sample, {}
        modules = self.module
        for name in self.beside.keys() - batches.keys():
            advise(name, f"no piece of the learner gives the module {name!r} a batch: it does not learn.")
        batches = {name: columns for name, columns in batches.items() if self.should_module_be_updated(name, None)}
        fwd_out = {name: modules[name].forward_train(columns) for name, columns in batches.items()}
        losses = self.compute_losses(fwd_out=fwd_out, batch=batches)
        for name, loss in losses.items():
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                found = f"the shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise PolicyError(f"{type(self).__name__}: the loss of {name!r} must be one number, got {found}.")
        self.apply_gradients(self.postprocess_gradients(self.compute_gradients(losses)))
        for name in self.beside.keys() & losses.keys():
            self.metrics.log_value((name, "total_loss"), losses[name], window=1)
        own = losses[DEFAULT_MODULE_ID].detach().reshape(()) if DEFAULT_MODULE_ID in losses else torch.zeros(())
        noted, self._sample = self._noted, None
        errors = noted.pop("td_error", None)
        return Update({"loss": own, **noted}, errors)

    def should_module_be_updated(self, module_id: str, multi_agent_batch: Any = None) -> bool:
        """Whether a module learns: here all do."""
        return True

    def compute_losses(self, *, fwd_out: dict[str, Any], batch: dict[str, Any]) -> dict[str, Tensor]:
        """Returns the loss [] of each module: that of :meth:`compute_loss_for_module`, or the module's own.

        Args:
            fwd_out: name -> the outputs of its ``forward_train``.
            batch: name -> its columns.
        """
        losses, modules = {}, self.module
        for name, outputs in fwd_out.items():
            config = self.config.get_config_for_module(name)
            known = {"module_id": name, "config": config, "batch": batch[name], "fwd_out": outputs}
            if isinstance(modules[name], SelfSupervisedLossAPI):
                losses[name] = modules[name].compute_self_supervised_loss(learner=self, **known)
            else:
                losses[name] = self.compute_loss_for_module(**known)
        return losses

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        """Returns the loss [] of a module, by default the algorithm's.

        Args:
            module_id: its name.
            config: the algorithm's config with the ``algorithm_config_overrides_per_module`` of this module.
            batch: its columns.
            fwd_out: the outputs of its ``forward_train`` for them.
        """
        raise NotImplementedError

    def _check_agents(self, module_id: str) -> None:
        """Refuse to take the algorithm's loss as that of a module that only the learner has.

        Raises:
            PolicyError: naming the module.
        """
        if module_id in self.beside:
            raise PolicyError(
                f"{type(self).__name__}: the algorithm's loss is that of {DEFAULT_MODULE_ID!r}. Write the loss of "
                f"{module_id!r} in compute_loss_for_module(), or as compute_self_supervised_loss() of the module."
            )

    def compute_gradients(self, loss_per_module: Mapping[str, Tensor], **kwargs: Any) -> Gradients:
        """Returns the gradients of the sum of losses, by parameter, except for parameters that it does not depend
        on."""
        params = [p for one in self.optimizers.values() for group in one.param_groups for p in group["params"]]
        for p in params:
            p.grad = None
        losses = [loss for loss in loss_per_module.values() if loss.requires_grad]
        if losses:
            torch.stack([loss.reshape(()) for loss in losses]).sum().backward()
        return {p: p.grad for p in params if p.grad is not None}

    def postprocess_gradients(self, gradients_dict: Gradients) -> Gradients:
        """Returns the gradients for optimizers: by default :meth:`postprocess_gradients_for_module` of each module."""
        found: Gradients = {}
        for name in self.module:
            own: Gradients = {}
            for _, optimizer in self.get_optimizers_for_module(name):
                own |= self.filter_param_dict_for_optimizer(gradients_dict, optimizer)
            config = self.config.get_config_for_module(name)
            found |= self.postprocess_gradients_for_module(module_id=name, config=config, module_gradients_dict=own)
        return found

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: Any = None, module_gradients_dict: Gradients
    ) -> Gradients:
        """Clip gradients by ``grad_clip`` and ``grad_clip_by``, those of each optimizer together."""
        config = self.config if config is None else config
        most = getattr(self, "max_grad_norm", None) if module_id == DEFAULT_MODULE_ID else config.grad_clip
        if most is not None:
            for _, optimizer in self.get_optimizers_for_module(module_id):
                found = self.filter_param_dict_for_optimizer(module_gradients_dict, optimizer)
                if grads := [grad for grad in found.values() if grad is not None]:
                    self.limit(grads, most)
        return module_gradients_dict

    def apply_gradients(self, gradients_dict: Gradients) -> None:
        """Make a step of each optimizer."""
        for parameter, grad in gradients_dict.items():
            parameter.grad = grad
        for optimizer in self.optimizers.values():
            optimizer.step()


def in_minibatches(rows: int, size: int, passes: int, shuffled: bool) -> Iterator[Tensor | None]:
    """Yields the indices of the rows of each gradient step, in ``passes`` passes; ``None``: all rows."""
    if size >= rows:
        yield from [None] * passes
        return
    mixed = shuffled and passes > 1
    order = [torch.randperm(rows) if mixed else torch.arange(rows) for _ in range(passes + 1)]
    for first in range(0, passes * rows, size):
        yield torch.cat(order)[first : first + size]
