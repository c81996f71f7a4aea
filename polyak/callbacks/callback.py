"""Base classes of callbacks: code that runs while a model is trained, and containers of callbacks.

The model is the one in training. Callbacks use its ``num_timesteps``, ``logger``, ``seed``, ``n_envs``, ``get_env()``,
``get_vec_normalize_env()``, ``save()``, ``save_replay_buffer()`` and ``dump_logs()``.
"""
# ruff: noqa: B027  (hooks are empty until a subclass defines them)

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyak.callbacks.watched import Watched
from polyak.envs import VecEnv
from polyak.logging.logger import Logger
from polyak.warning import warn_user

CallbackFunction = Callable[[dict[str, Any], dict[str, Any]], bool]


def _of_whole(name: str) -> Any:
    """Returns a method of dict that first computes all entries."""
    method = getattr(dict, name)

    @functools.wraps(method)
    def of_whole(entries: "LoopLocals", *args: Any) -> Any:
        entries.whole()
        return method(entries, *args)

    return of_whole


class _Once:
    """A function that is called at most once: this is made at every step, in a fraction of ``functools.cache``'s time.

    Args:
        compute: the function.
    """

    __slots__ = "compute", "found"

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self.compute = compute
        self.found: Mapping[str, Any] | None = None

    def __call__(self) -> Mapping[str, Any]:
        if self.found is None:
            self.found = self.compute()
        return self.found


class LoopLocals(dict[str, Any]):
    """The ``locals`` of a training loop. Expensive entries are computed when they are read.

    Reading one of :attr:`COSTLY` computes all of these; so do operations on all entries, such as iterating and copying.

    Args:
        entries: by name.
        compute: called at most once, for the values of :attr:`COSTLY`; names in ``entries`` keep their values.
    """

    COSTLY = ("obs_tensor", "values", "log_probs")

    def __init__(self, entries: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]] | None = None) -> None:
        super().__init__(entries)
        self.entries, self.compute = entries, None if compute is None else _Once(compute)

    def renew(self, other: Mapping[str, Any]) -> None:
        """Take over the entries of a later step; entries to compute replace the present ones."""
        entries, self.compute = other, None
        if isinstance(other, LoopLocals):
            entries, self.compute = other.entries, other.compute
            for name in self.COSTLY if self.compute else ():
                dict.pop(self, name, None)
        dict.update(self, entries)

    def also(self, names: Mapping[str, Any]) -> "LoopLocals":
        """Returns the same with further entries."""
        new = LoopLocals({**self.entries, **names})
        new.compute = self.compute
        return new

    def whole(self) -> dict[str, Any]:
        """Returns all entries, after computing them."""
        if self.compute is not None:
            found, self.compute = self.compute(), None
            super().update(
                {name: value for name, value in found.items() if not super(LoopLocals, self).__contains__(name)}
            )
        return self

    def __missing__(self, name: str) -> Any:
        if name in self.COSTLY and self.compute is not None:
            return self.whole()[name]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (self.compute is not None and name in self.COSTLY)

    def __reduce__(self) -> Any:
        return LoopLocals, ({**self},)

    copy = _of_whole("copy")
    items = _of_whole("items")
    keys = _of_whole("keys")
    values = _of_whole("values")
    __eq__ = _of_whole("__eq__")
    __iter__ = _of_whole("__iter__")
    __len__ = _of_whole("__len__")
    __or__ = _of_whole("__or__")
    __repr__ = _of_whole("__repr__")
    __reversed__ = _of_whole("__reversed__")
    __ror__ = _of_whole("__ror__")


class BaseCallback(ABC):
    """Base class of callbacks: a subclass defines ``_on_step`` and further hooks that start with ``_on``.

    Attributes:
        model: the model in training.
        n_calls: calls of ``on_step`` so far.
        num_timesteps: environment steps so far, over all environments.
        locals, globals: variables of the training loop: ``self`` (the model), ``infos``, ``rewards``, ``dones``,
            ``new_obs``, ``actions`` ..., updated at every step. On-policy algorithms compute ``values``, ``log_probs``
            and ``obs_tensor`` when one of them is read.
        parent: the callback that this one is a child of, if any.

    Args:
        verbose: 0 prints nothing, 1 information, 2 debugging messages.
    """

    model: Watched
    # Not inherited: a subclass of a callback that does not read ``locals`` may read them.
    _reads_locals: bool
    _locals: LoopLocals

    def __init__(self, verbose: int = 0) -> None:
        super().__init__()
        self.n_calls = 0
        self.num_timesteps = 0
        self.verbose = verbose
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}
        self.parent: BaseCallback | None = None
        self._has_warned = False

    @property
    def locals(self) -> dict[str, Any]:
        """The variables of the training loop."""
        return self._locals

    @locals.setter
    def locals(self, value: dict[str, Any]) -> None:
        self._locals = value if isinstance(value, LoopLocals) else LoopLocals(value)

    @property
    def needs_locals(self) -> bool:
        """Whether ``self.locals`` must be updated at every step.

        True unless the class itself sets it. A subclass that does not read ``self.locals`` in ``_on_step`` may set
        ``needs_locals = False`` to make the training loop faster.

        True unless the class itself says otherwise. A subclass that does not read ``self.locals`` in ``_on_step`` may
        set ``needs_locals = False`` and spare the training loop the work.
        """
        return vars(type(self)).get("_reads_locals", True)

    @property
    def is_idle(self) -> bool:
        """Whether :meth:`on_step` has no effect, so that the training loop need not call it."""
        return False

    @property
    def training_env(self) -> VecEnv:
        """The environment of the training."""
        env = self.model.get_env()
        if env is None:
            raise ValueError(
                "the model has no environment (model.get_env() is None): give it one with model.set_env()."
            )
        return env

    @property
    def logger(self) -> Logger:
        """The model's logger."""
        return self.model.logger

    def init_callback(self, model: Any) -> None:
        """Attach the callback to a model, before training.

        Raises:
            TypeError: the class has an ``__init__`` that does not call :class:`BaseCallback`'s.
        """
        if "n_calls" not in vars(self):
            name = type(self).__qualname__
            raise TypeError(
                f"{name}.__init__() did not call super().__init__(): write super().__init__(verbose) as its first line."
            )
        self.model = model
        self._init_callback()

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Called once, before the first rollout."""
        self.locals = locals_
        self.globals = globals_
        self.num_timesteps = self.model.num_timesteps
        self._on_training_start()

    def on_rollout_start(self) -> None:
        """Called before experience is collected."""
        self._on_rollout_start()

    def on_step(self) -> bool:
        """Called after every step of the environments.

        Returns:
            whether training continues.
        """
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        keep_going = self._on_step()
        return True if keep_going else self._stop(keep_going)

    def _stop(self, said: Any) -> bool:
        """Return False, with a warning if the callback returned ``None`` instead."""
        if said is None and not self._has_warned:
            self._has_warned = True
            warn_user(f"{self!r} returned None, which stops training as False does. Return True to continue.")
        return False

    def on_rollout_end(self) -> None:
        """Called after experience is collected, before the update."""
        self._on_rollout_end()

    def on_training_end(self) -> None:
        """Called once, when training is over."""
        self._on_training_end()

    def update_locals(self, locals_: dict[str, Any]) -> None:
        """Update ``self.locals``, and the children's."""
        self._locals.renew(locals_)
        self.update_child_locals(locals_)

    def update_child_locals(self, locals_: dict[str, Any]) -> None:
        """Update the children's ``locals``."""

    # -- hooks of subclasses -------------------------------------------------------------------------------------------

    def _init_callback(self) -> None:
        """Called when ``self.model`` has been set."""

    def _on_training_start(self) -> None:
        """Called when training begins."""

    def _on_rollout_start(self) -> None:
        """Called when a rollout begins."""

    @abstractmethod
    def _on_step(self) -> bool:
        """Called after each step. Return ``False`` to stop training."""

    def _on_rollout_end(self) -> None:
        """Called when a rollout is complete."""

    def _on_training_end(self) -> None:
        """Called when training is over."""


MaybeCallback = BaseCallback | CallbackFunction | Sequence[BaseCallback | CallbackFunction] | None


# -- callbacks that hold others ----------------------------------------------------------------------------------------


class ConvertCallback(BaseCallback):
    """A function as a callback.

    Args:
        callback: called at every step as ``callback(locals, globals)``; returns whether training continues; ``None``:
            none.
        verbose: as in :class:`BaseCallback`.
    """

    def __init__(self, callback: CallbackFunction | None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = callback

    @property
    def needs_locals(self) -> bool:
        return self.callback is not None

    def _on_step(self) -> bool:
        return True if self.callback is None else self.callback(self.locals, self.globals)

    def __repr__(self) -> str:
        return f"ConvertCallback({self.callback!r})"


class _Parent(BaseCallback):
    """A callback with children, which it calls at the start and end of training, and which share its ``locals``."""

    _reads_locals = False

    def _children(self) -> list[BaseCallback]:
        raise NotImplementedError

    def _relay(self, hook: str, *args: Any) -> None:
        for child in self._children():
            getattr(child, hook)(*args)

    @property
    def needs_locals(self) -> bool:
        return super().needs_locals or any(child.needs_locals for child in self._children())

    def update_child_locals(self, locals_: dict[str, Any]) -> None:
        self._relay("update_locals", locals_)

    def _on_training_start(self) -> None:
        self._relay("on_training_start", self.locals, self.globals)

    def _on_training_end(self) -> None:
        errors: list[Exception] = []
        for child in self._children():  # all of them: each may have a file to close
            try:
                child.on_training_end()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


class CallbackList(_Parent):
    """Several callbacks, called in order; every one is called even if an earlier one stops training.

    Args:
        callbacks: callbacks, or functions as for :class:`ConvertCallback`.

    Raises:
        TypeError: one is neither.
    """

    _reads_locals = False

    def __init__(self, callbacks: Sequence[BaseCallback | CallbackFunction]) -> None:
        super().__init__()
        self.callbacks = [as_object(callback) for callback in callbacks]

    def _children(self) -> list[BaseCallback]:
        return self.callbacks

    @property
    def is_idle(self) -> bool:
        return type(self) is CallbackList and not self.callbacks

    def _init_callback(self) -> None:
        self._relay("init_callback", self.model)
        for child in self.callbacks:
            child.parent = self.parent  # some require an EvalCallback as parent

    def _on_step(self) -> bool:
        return False not in [child.on_step() for child in self.callbacks]

    def _on_rollout_start(self) -> None:
        self._relay("on_rollout_start")

    def _on_rollout_end(self) -> None:
        self._relay("on_rollout_end")


class EventCallback(_Parent):
    """A callback that steps a child when an event occurs.

    The child is called at the start and end of training, and at the event (``_on_step``), but not for rollouts.

    Args:
        callback: the child, stepped by ``self._on_event()``.
        verbose: as in :class:`BaseCallback`.

    Raises:
        TypeError: ``callback`` is neither a callback nor a function.
    """

    _reads_locals = False

    def __init__(self, callback: BaseCallback | CallbackFunction | None = None, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.callback = self._adopt(callback)

    def _adopt(self, callback: BaseCallback | CallbackFunction | None) -> BaseCallback | None:
        if callback is None:
            return None
        child = as_object(callback)
        child.parent = self
        return child

    def _children(self) -> list[BaseCallback]:
        return [] if self.callback is None else [self.callback]

    def init_callback(self, model: Any) -> None:
        super().init_callback(model)
        self._relay("init_callback", model)

    def _on_event(self) -> bool:
        return True if self.callback is None else self.callback.on_step()

    def _on_step(self) -> bool:
        return True


def each_of(callback: BaseCallback) -> list[BaseCallback]:
    """Returns a callback and all its descendants, in the order of their calls."""
    below = callback._children() if isinstance(callback, _Parent) else []
    return [callback, *(one for child in below for one in each_of(child))]


def as_object(callback: BaseCallback | CallbackFunction) -> BaseCallback:
    """Returns a callback unchanged, and a function as a callback that calls it."""
    if isinstance(callback, BaseCallback):
        return callback
    if isinstance(callback, type) or not callable(callback):
        raise TypeError(
            "callback must be a BaseCallback object, a function of (locals, globals) or a list of them, got "
            f"{callback!r}."
        )
    return ConvertCallback(callback)
