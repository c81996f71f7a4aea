"""A learner as RLlib lets programs subclass it: losses of modules, optimizers, gradients, and what happens around them.

One that changes nothing but what happens around updates makes the gradient steps of polyak's own learner, as compiled
programs too. One with losses, gradients or optimizers of its own makes each step as RLlib does, line by line: forward
passes of the modules, :meth:`TorchLearner.compute_losses`, gradients, and a step of each optimizer.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyak.compat.overrides import changed
from polyak.compat.ray.columns import DEFAULT_MODULE_ID
from polyak.compat.ray.metrics import MetricsLogger
from polyak.compat.ray.models.multi import MultiRLModule
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Learner, LearnerRecipe, Update, set_rate
from polyak.nn.errors import PolicyError

Batch = dict[str, Any]
Gradients = dict[nn.Parameter, Tensor | None]
SAMPLED = "num_env_steps_sampled_lifetime"
"""Name of the environment steps so far among ``timesteps``."""
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
    """Its learning rate: a number, or points [[environment step, value], ...]; ``None``: as it is."""


class TorchLearner(Learner):
    """What all learners of RLlib's have.

    Args:
        recipe: polyak's, of policy, optimizer and hyper-parameters.

    Attributes:
        metrics: where a subclass logs: ``self.metrics.log_value((module_id, name), value, window=1)`` is reported as
            ``learners/module_id/name``.
    """

    config: ClassVar[Any] = None
    """Of the algorithm, frozen."""
    framework = "torch"
    reasons: ClassVar[Mapping[str, str]] = {}
    """Further methods that are not called, and why."""

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.metrics = MetricsLogger()
        self.counts: Callable[[], int] = lambda: 0
        self._noted: dict[str, Tensor] = {}
        self._registered: dict[str, Registered] = {}
        self._sample: Any = None
        self.build()

    @classmethod
    def face(cls) -> type[TorchLearner]:
        """The class of this package that a program's own derives from."""
        return next(base for base in cls.__mro__ if base.__module__.startswith(__package__ or ""))

    @classmethod
    def own(cls) -> list[str]:
        """The methods of losses, gradients and optimizers that a program has written."""
        return changed(cls, cls.face(), [*LOSSES, *OPTIMIZERS])

    def build(self) -> None:
        """Set up what it needs; called once. A subclass calls ``super().build()``, too."""
        if changed(type(self), self.face(), OPTIMIZERS):
            first = dict(self.optimizers)
            self.optimizers.clear()
            self._owners.clear()
            self.configure_optimizers()
            fix = "it registers no optimizer. Call register_optimizer(module_id=..., optimizer=..., params=...)."
            require(bool(self.optimizers), "learner_class", type(self), fix)
            for owner in (self.policy, *self.policy.modules()):
                if getattr(owner, "optimizer", None) in first.values():
                    object.__setattr__(owner, "optimizer", next(iter(self.optimizers.values())))

    def shutdown(self) -> None:
        """The algorithm is stopped. A subclass may end what it has begun."""

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
        return MultiRLModule({DEFAULT_MODULE_ID: module})

    _module = module

    @property
    def _learner_connector(self) -> Any:
        """Refuse.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot change its connector pieces. learners(learner_connector=...) says "
            "what they are; the default pieces of RLlib's are not among them."
        )

    @property
    def device(self) -> torch.device:
        """Where it learns."""
        return next(self.parameters()).device

    _device = device

    def get_parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """Those of a module or a part of one."""
        return list(module.parameters())

    def get_param_ref(self, param: nn.Parameter) -> nn.Parameter:
        """What a parameter is called in a dict of gradients: itself."""
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
        self.register_optimizer(
            module_id=module_id, optimizer=torch.optim.Adam(params), params=params, lr_or_lr_schedule=config.lr
        )

    def register_optimizer(
        self,
        *,
        module_id: str = DEFAULT_MODULE_ID,
        optimizer_name: str = "default_optimizer",
        optimizer: Optimizer,
        params: Sequence[nn.Parameter],
        lr_or_lr_schedule: Any = None,
    ) -> None:
        """Let an optimizer make steps.

        Args:
            module_id: of which module.
            optimizer_name: its name among those of the module.
            optimizer: already made.
            params: those that it moves.
            lr_or_lr_schedule: its learning rate, a number or points [[environment step, value], ...], which it is given
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
                points = one.rate if isinstance(one.rate, list | tuple) else [[0, one.rate]]
                at, values = zip(*points, strict=True)
                set_rate(one.optimizer, float(np.interp(steps, at, values)))

    def _set_learning_rate(self, value: float) -> None:
        if not self._registered:
            super()._set_learning_rate(value)

    def get_optimizer(self, module_id: str = DEFAULT_MODULE_ID, optimizer_name: str = "default_optimizer") -> Optimizer:
        """One of a module's.

        Raises:
            KeyError: there is none of that name.
        """
        return dict(self.get_optimizers_for_module(module_id))[optimizer_name]

    def get_optimizers_for_module(self, module_id: str = DEFAULT_MODULE_ID) -> list[tuple[str, Optimizer]]:
        """Those of a module, with their names."""
        if not self._registered:
            return [("default_optimizer", one) for one in self.optimizers.values()]
        own = [one for one in self._registered.values() if one.module_id == module_id]
        return [(one.name, one.optimizer) for one in own]

    def filter_param_dict_for_optimizer(self, param_dict: Gradients, optimizer: Optimizer) -> Gradients:
        """The entries of a dict that are of an optimizer's parameters."""
        return {p: param_dict[p] for group in optimizer.param_groups for p in group["params"] if p in param_dict}

    # -- what happens around updates -----------------------------------------------------------------------------------

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Before each update; ``timesteps`` has the environment steps so far as ``"num_env_steps_sampled_lifetime"``. A
        subclass may do what it likes."""

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """After each update. A subclass calls ``super()``, which moves the learning rates of registered optimizers."""
        self._move_rates(timesteps[SAMPLED])

    @contextmanager
    def _one_update(self) -> Iterator[None]:
        """Around an update."""
        timesteps = {SAMPLED: self.counts()}
        self.before_gradient_based_update(timesteps=timesteps)
        yield
        self.after_gradient_based_update(timesteps=dict(timesteps))

    # -- one gradient step ---------------------------------------------------------------------------------------------

    def run(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        plainly = method.__name__ == "gradient_step" and bool(self.own())
        return self.eagerly(method, batch, *static) if plainly else super().run(method, batch, *static)

    def own_step(self, batch: Any) -> Update:
        """A gradient step by what a program has written."""
        self._sample, self._noted = batch, {}
        columns = self.batch_of(batch)
        chosen = {name: one for name, one in self.module.items() if self.should_module_be_updated(name, None)}
        fwd_out = {name: module.forward_train(columns) for name, module in chosen.items()}
        losses = self.compute_losses(fwd_out=fwd_out, batch={name: dict(columns) for name in chosen})
        for name, loss in losses.items():
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                found = f"the shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise PolicyError(f"{type(self).__name__}: the loss of {name!r} must be one number, got {found}.")
        self.apply_gradients(self.postprocess_gradients(self.compute_gradients(losses)))
        total = (
            torch.stack([loss.detach().reshape(()) for loss in losses.values()]).sum() if losses else torch.zeros(())
        )
        noted, self._sample = self._noted, None
        errors = noted.pop("td_error", None)
        return Update({"loss": total, **noted}, errors)

    def batch_of(self, batch: Any) -> Batch:
        """The columns of a minibatch under RLlib's names."""
        raise NotImplementedError

    def should_module_be_updated(self, module_id: str, multi_agent_batch: Any = None) -> bool:
        """Whether a module learns: here all do."""
        return True

    def compute_losses(self, *, fwd_out: dict[str, Any], batch: dict[str, Any]) -> dict[str, Tensor]:
        """Name of a module -> its loss [].

        Args:
            fwd_out: name -> what its ``forward_train`` returned.
            batch: name -> its columns.
        """
        return {
            name: self.compute_loss_for_module(
                module_id=name,
                config=self.config.get_config_for_module(name),
                batch=batch[name],
                fwd_out=outputs,
            )
            for name, outputs in fwd_out.items()
        }

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        """The loss [] of a module: here the algorithm's own.

        Args:
            module_id: its name.
            config: of the algorithm.
            batch: its columns.
            fwd_out: what its ``forward_train`` returned of them.
        """
        raise NotImplementedError

    def compute_gradients(self, loss_per_module: Mapping[str, Tensor], **kwargs: Any) -> Gradients:
        """Of the sum of losses, by parameter; of those that it does not depend on there are none."""
        params = [p for one in self.optimizers.values() for group in one.param_groups for p in group["params"]]
        for p in params:
            p.grad = None
        losses = [loss for loss in loss_per_module.values() if loss.requires_grad]
        if losses:
            torch.stack([loss.reshape(()) for loss in losses]).sum().backward()
        return {p: p.grad for p in params if p.grad is not None}

    def postprocess_gradients(self, gradients_dict: Gradients) -> Gradients:
        """What optimizers are given: here :meth:`postprocess_gradients_for_module` of each module."""
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
        """Limit gradients as ``grad_clip`` and ``grad_clip_by`` say, those of each optimizer together."""
        most = getattr(self, "max_grad_norm", None)
        if most is not None:
            for _, optimizer in self.get_optimizers_for_module(module_id):
                found = self.filter_param_dict_for_optimizer(module_gradients_dict, optimizer)
                if grads := [grad for grad in found.values() if grad is not None]:
                    self.limit(grads, most)
        return module_gradients_dict

    def apply_gradients(self, gradients_dict: Gradients) -> None:
        """A step of each optimizer."""
        for parameter, grad in gradients_dict.items():
            parameter.grad = grad
        for optimizer in self.optimizers.values():
            optimizer.step()
