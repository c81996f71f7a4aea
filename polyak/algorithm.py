"""The face of every algorithm: ``learn``, ``predict``, ``save``, ``load``, callbacks and logs.

An algorithm is a dataclass: each hyper-parameter is written once, with its type and range, default and meaning. The
constructor and its checks, ``help``, the learner, the command line, the documentation and the checkpoint all read that.

The face presumes neither an environment, nor networks, nor a compiler. What meets environments adds
:class:`~polyak.kinds.env_algorithm.EnvAlgorithm`, and what learns with networks is a
:class:`~polyak.kinds.network_algorithm.NetworkAlgorithm`.
"""

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, fields
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from gymnasium import spaces
from typing_extensions import Self

from polyak.callbacks.attached import as_callback
from polyak.callbacks.callback import BaseCallback, MaybeCallback
from polyak.checkpoint import exporting
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.saved import Saved
from polyak.collecting.time_split import TimeSplit
from polyak.evaluation.undisturbed import learning
from polyak.hyperparameters.changing import make_changeable
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Natural,
    NonNegative,
    Only,
    check_names,
    declared,
    fitted,
    later,
    names_checked,
    require,
)
from polyak.hyperparameters.docstrings import Documentation, Signature
from polyak.logging.logger import Logger, configure_logger
from polyak.seeding import set_random_seed
from polyak.warning import advise, warn_user


class _Loader(classmethod):
    """``load``, which warns when it is called on a model: that model stays as it is."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is not None:
            advise(
                "load on an instance",
                "load() returns a new model and leaves the one that it is called on as it was. Write `model = "
                f"{type(instance).__name__}.load(path)`, or `model.set_parameters(path)` to change this model.",
            )
        return super().__get__(None, type(instance) if owner is None else owner)


@dataclass(eq=False, repr=False)
class Algorithm:
    """What all algorithms share.

    A kind of algorithm writes :meth:`_iterate` and :meth:`predict`, and extends those of the hooks below that concern
    it, each of which calls ``super()``.

    Raises:
        TypeError: an unknown argument.
        ValueError: an argument out of range.
    """

    _: KW_ONLY
    stats_window_size: Count = 100
    """Episodes that the logged means of return, length and success cover."""
    tensorboard_log: Becomes[str | os.PathLike[str] | None, str | None] = later(None)
    """Folder for TensorBoard files; ``None`` writes none."""
    verbose: Natural | bool = 0
    """0 prints nothing, 1 the training table and what was wrapped, 2 debugging messages too."""
    seed: Annotated[int, Only("an integer in [0, 2**32)", lambda n: 0 <= n < 2**32)] | None = None
    """Seeds python, numpy, torch, the environments and the action space."""
    _init_setup_model: InitVar[bool] = True
    """Build what learns at once; ``False`` leaves it to a later ``_setup_model()``."""

    __signature__: ClassVar[Any] = Signature()
    needs: ClassVar[tuple[str, ...]] = ()
    """Arguments that it cannot learn without and that only a program can give, since they are objects."""
    goes_without: ClassVar[tuple[str, ...]] = ()
    """Arguments of related algorithms that it has no use for, as far as they are no fields of its own: constructors
    refuse them, and files of earlier versions may hold them."""
    built_with: ClassVar[Mapping[str, str]] = {
        "seed": "it has been used. Call model.set_random_seed(seed), or load(path, seed=...).",
    }
    """Hyper-parameters that cannot change once a model is built -> why, and what to do instead. Those of the classes
    above count, too: see :mod:`polyak.hyperparameters.changing`."""
    why_no_graph: ClassVar[str] = "it does not act by a graph of tensors"
    """Why :meth:`export` refuses a model, where :meth:`acting_graph` is that of this class."""
    saves_also: ClassVar[frozenset[str]] = frozenset()
    """What :meth:`save` puts into a file only if its ``include`` names it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        setattr(cls, "__doc__", Documentation(cls.__doc__))  # noqa: B010  # type checkers see a text
        if isinstance(learn := vars(cls).get("learn"), FunctionType) and not hasattr(learn, "__wrapped__"):
            setattr(cls, "learn", names_checked(learn))  # noqa: B010

    if not TYPE_CHECKING:  # which know the constructors themselves

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            check_names(cls, kwargs)
            make_changeable(cls)
            return super().__new__(cls)

    def __post_init__(self, _init_setup_model: bool) -> None:
        self._check_types()
        self._check_hyperparameters()
        self.observation_space: spaces.Space
        self.action_space: spaces.Space
        self.num_timesteps = self._n_updates = self._episode_num = 0
        self._total_timesteps = self._num_timesteps_at_start = 0
        self._current_progress_remaining = 1.0
        self.start_time = 0.0
        self._logger: Logger | None = None
        self._custom_logger = False
        self.ep_info_buffer: deque[dict[str, Any]] = deque(maxlen=self.stats_window_size)
        self.ep_success_buffer: deque[float] = deque(maxlen=self.stats_window_size)
        self._split = TimeSplit()

    def __repr__(self) -> str:
        lines = [f"  {what:<15} {' '.join(text.split())}" for what, text in self._summary().items()]
        return "\n".join([f"{type(self).__name__}:", *lines])

    def _summary(self) -> dict[str, str]:
        """What ``repr`` says of the model, also of one that is not built yet: what -> in words."""
        steps = f"{getattr(self, 'num_timesteps', 0):,} steps, {getattr(self, '_n_updates', 0):,} updates"
        names = {"observations": "observation_space", "actions": "action_space"}
        found = {what: str(vars(self)[name]) for what, name in names.items() if name in vars(self)}
        return {**found, "trained": steps}

    def _check_types(self) -> None:
        for name, declaration in declared(type(self)).items():
            if name not in ("policy", "env"):  # which are found and built later
                setattr(self, name, fitted(name, getattr(self, name), declaration))
        self._plain_log()

    def _plain_log(self) -> None:
        if self.tensorboard_log is not None:
            self.tensorboard_log = os.path.expanduser(self.tensorboard_log)

    @classmethod
    def trial(cls) -> dict[str, Any]:
        """Arguments of a model so small that everything can be tried with it in a second, as conformance tests do."""
        return {"seed": 3}

    # -- what a kind of algorithm writes -------------------------------------------------------------------------------

    def _iterate(self, callback: BaseCallback, log_interval: int | None) -> bool:
        """Collect some experience and learn from it. False: a callback asked to stop."""
        raise NotImplementedError

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """The action for one observation or a batch of them, and the next recurrent state."""
        raise NotImplementedError

    def _check_hyperparameters(self) -> None:
        """Refuse what the annotations of the fields cannot say, before anything is built."""

    def _setup_model(self) -> None:
        """Seed, then build what learns."""
        if self.seed is not None:
            self.set_random_seed(self.seed)

    def _check_built(self) -> None:
        """After a constructor's :meth:`_setup_model`: refuse what cannot be done with what it built."""
        self._call_built()

    def _call_built(self) -> None:
        """The model is built: hyper-parameters that are set from now on take effect at the next update, or are refused.
        See :mod:`polyak.hyperparameters.changing`."""
        self._is_built = True

    def _put(self, **values: Any) -> None:
        """Set hyper-parameters as they are, where the model itself moves them: nothing is checked, nothing follows."""
        vars(self).update(values)

    def _adopt(self, name: str, before: Any) -> None:
        """Let what was built follow a hyper-parameter that has been set, and was ``before``. All is as before if this
        raises."""
        if name == "tensorboard_log":
            self._plain_log()
        if name == "stats_window_size":
            self.ep_info_buffer = deque(self.ep_info_buffer, maxlen=self.stats_window_size)
            self.ep_success_buffer = deque(self.ep_success_buffer, maxlen=self.stats_window_size)

    # -- hooks around learning -----------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        """Before anything of ``learn`` happens: refuse what cannot be learned with."""

    def _prepare_to_learn(self, reset: bool) -> None:
        """Before the first iteration, when the counters stand; ``reset``: they began at zero."""

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        """Around all iterations of one call of ``learn``."""
        yield

    def _check_iteration(self) -> None:
        """After each iteration but one that a callback has stopped."""

    # -- learning ------------------------------------------------------------------------------------------------------

    @names_checked
    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train.

        Args:
            total_timesteps: environment steps to make, over all environments: a lower bound, since a rollout that has
                begun is finished.
            callback: called at every step; a function, a callback object, or a list of them.
            log_interval: iterations (on-policy) or episodes (off-policy) between two log tables; ``None`` for none.
            tb_log_name: name of the run's folder under ``tensorboard_log``; ``None`` takes the algorithm's name.
            reset_num_timesteps: start counting at zero; ``False`` continues the counters and logs.
            progress_bar: show one; needs ``polyak[extra]``.

        Returns:
            the model itself.

        Raises:
            ValueError: the model has nothing to learn from, such as an environment, or an argument is out of range.
        """
        fitted("total_timesteps", total_timesteps, NonNegative)
        fitted("log_interval", log_interval, int | None)
        require(log_interval != 0, "log_interval", log_interval, "give at least 1, or None for no tables.")
        name = type(self).__name__ if tb_log_name is None else tb_log_name
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, name, progress_bar
        )
        with learning(self):
            callback.on_training_start(self._callback_locals(callback=callback, log_interval=log_interval), globals())
        with learning(self), self._while_learning():
            try:
                while self.num_timesteps < total_timesteps and self._iterate(callback, log_interval):
                    self._check_iteration()
            except BaseException:
                _end_in_spite(callback)
                raise
            else:
                callback.on_training_end()
            finally:
                self._split.stop()
        if self.verbose >= 1:
            print("time: " + ", ".join(f"{name} {share} %" for name, share in self._split.percent().items()))
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        """Reset counters, statistics, logger and what else a call of ``learn`` needs."""
        self._call_built()  # also a model that a program has set up by itself
        self._check_ready()
        self.start_time = time.time_ns()
        self._split.start()
        if reset_num_timesteps:
            self.num_timesteps = self._episode_num = 0
            self.ep_info_buffer.clear()
            self.ep_success_buffer.clear()
        else:
            total_timesteps += self.num_timesteps
        self._total_timesteps, self._num_timesteps_at_start = total_timesteps, self.num_timesteps
        self._prepare_to_learn(reset_num_timesteps)
        if not self._custom_logger:
            self._logger = configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        return total_timesteps, self._init_callback(callback, progress_bar)

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        """What :meth:`learn` got as ``callback``, as one callback of this model."""
        return as_callback(callback, self, progress_bar)

    def _callback_locals(self, **names: Any) -> dict[str, Any]:
        """What a callback finds in ``self.locals``."""
        return {"self": self, "env": self.get_env(), "total_timesteps": self._total_timesteps, **names}

    def get_env(self) -> Any:
        """The environment that it learns in; ``None`` where there is none."""
        return None

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        self._current_progress_remaining = 1.0 - float(num_timesteps) / float(total_timesteps)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed python, numpy, torch, the environments and the action space; ``None`` does nothing."""
        if seed is not None:
            self._seed(seed)

    def _seed(self, seed: int) -> None:
        set_random_seed(seed)
        self.action_space.seed(seed)

    # -- logging -------------------------------------------------------------------------------------------------------

    @property
    def logger(self) -> Logger:
        """Where training writes; there is one from the first ``learn`` on, or after :meth:`set_logger`."""
        if self._logger is None:
            raise AttributeError("the model has no logger before learn(); call set_logger() to give it one.")
        return self._logger

    def set_logger(self, logger: Logger) -> None:
        """Write to ``logger`` instead of what ``verbose`` and ``tensorboard_log`` ask for.

        Raises:
            ValueError: it has no ``record`` and ``dump``.
        """
        fix = "give a Logger, such as configure(folder, ['stdout', 'csv']) makes."
        require(hasattr(logger, "record") and hasattr(logger, "dump"), "logger", logger, fix)
        self._logger, self._custom_logger = logger, True

    def dump_logs(self) -> None:
        """Write the statistics of finished episodes, the speed and whatever was recorded since the last dump."""
        self._write_logs()

    def _write_logs(self, **counters: float) -> None:
        """:meth:`dump_logs`, with further values of the ``time/`` group, such as ``episodes``."""
        elapsed = max((time.time_ns() - self.start_time) / 1e9, float(np.finfo(float).eps))
        for name, value in counters.items():
            self.logger.record(f"time/{name}", value, exclude="tensorboard")
        if self.ep_info_buffer:
            self.logger.record("rollout/ep_rew_mean", float(np.mean([e["r"] for e in self.ep_info_buffer])))
            self.logger.record("rollout/ep_len_mean", float(np.mean([e["l"] for e in self.ep_info_buffer])))
        if self.ep_success_buffer:
            self.logger.record("rollout/success_rate", float(np.mean(self.ep_success_buffer)))
        self.logger.record("time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed))
        self.logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        for name, share in self._split.percent_since_logged().items():
            self.logger.record(f"time/{name}", share, exclude="stdout")
        self.logger.dump(step=self.num_timesteps)

    @property
    def time_split(self) -> dict[str, float]:
        """Seconds that the last call of :meth:`learn` spent, or the present one has spent, on each of ``env``,
        ``inference``, ``copy``, ``sample``, ``update`` and ``other``; their sum is the wall time. See
        :mod:`polyak.collecting.time_split`.
        """
        return self._split.seconds()

    # -- files ---------------------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        """Every hyper-parameter with its present value."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("policy", "env")}

    def _description(self) -> dict[str, Any]:
        """JSON values that a file needs besides hyper-parameters, spaces and counters, to build the model again."""
        return {}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        """Put into a file what was learned, what training needs to resume, and what ``include`` asks for."""

    def _extra_state(self) -> dict[str, Any]:
        """Small values that a file must hold for training to resume unchanged."""
        return {}

    @classmethod
    def _takes(cls, name: str) -> bool:
        """Whether :meth:`_unbuilt` can be given a value of that name."""
        return name in {f.name for f in fields(cls)}

    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self:
        """A model of a file's hyper-parameters, before :meth:`_setup_model`."""
        return cls(**hyperparameters, _init_setup_model=False)

    def _enter(self, saved: Saved, env: Any) -> None:
        """Take up what a file says of environments, and the environment to continue in.

        Raises:
            ValueError: it does not fit the file, or there is no use for one.
        """
        if env is not None:
            raise ValueError(f"env={env!r} cannot be used: {type(self).__name__} learns without an environment.")

    def _load_state(self, saved: Saved) -> None:
        """Take back what :meth:`_save_state` wrote of what was learned."""

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`_extra_state` returned."""

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        """Take back what was under way: with ``resume`` experience, without ``force_reset`` observations in hand."""

    def save(self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None) -> None:
        """Write the model to one file: how to build it, and what it learned. Nothing in it runs when it is loaded.

        Args:
            path: a path (``.zip`` is added to a name without a suffix) or a file opened for writing.
            exclude: hyper-parameters or counters to leave out.
            include: further things to put in: ``"replay_buffer"``; a name in both lists is put in.

        Raises:
            ValueError: ``include`` names something that cannot be saved this way, or ``exclude`` nothing that the
                model has.
        """
        checkpoint.save(self, path, exclude=set(exclude or ()), include=set(include or ()))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        masks: bool | None = None,
        channels_last: bool | None = None,
        stochastic: bool = False,
    ) -> dict[str, Any]:
        """Write what acts to one file that needs no polyak: a graph from an observation as the environment gives it to
        the action that the environment takes, for any number of rows.

        Statistics of ``VecNormalize``, the order of an image's channels and its scale, one-hot vectors, and scaling,
        clipping and rounding of actions are in the graph. Recurrent state goes in and comes out. The file appears
        under its name when it is complete. Its description, JSON, is in it: under ``polyak`` among the metadata of an
        ONNX file, and as the extra file ``polyak.json`` of a ``.pt2``. See ``docs/deployment.md``.

        Args:
            path: ends with ``.onnx`` (needs ``polyak[onnx]``) or ``.pt2`` (``torch.export``).
            masks: whether action masks [B, M] are an input; ``None``: where the policy supports them, unless the
                model's environment is known to give none, or gives them in its observations, where they are read.
            channels_last: whether images come as (H, W, C) where the policy reads (C, H, W); ``None``: as the model's
                environment has them, and without an environment (C, H, W).
            stochastic: sample actions, with the random numbers as further inputs; else the deterministic ones.

        Returns:
            the description: inputs and outputs, and the spaces.

        Raises:
            ValueError: another suffix, a model that does not act by one graph, wrappers around ``VecNormalize`` that
                change observations, or ``masks``, ``channels_last`` or ``stochastic`` where there is no such thing.
            ImportError: ``polyak[onnx]`` is missing.
        """
        return exporting.export(self, path, masks, channels_last, stochastic)

    def acting_graph(
        self, masks: bool | None = None, channels_last: bool | None = None, stochastic: bool = False
    ) -> exporting.Graph:
        """What :meth:`export` writes; arguments and errors as there."""
        raise ValueError(f"{type(self).__name__} cannot be exported: {self.why_no_graph}.")

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: Any = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        *,
        trust: bool = False,
        resume: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Build a new model from a file. To put weights into an existing model, use ``set_parameters``.

        A file of Stable-Baselines3 (1.0 to 2.9) is read too, without running anything that it holds.

        Args:
            path: a path or a file opened for reading.
            env: the environment to continue in; its spaces must be those of the file. One that is not normalised is
                wrapped with the statistics that the file holds, if it holds any; a ``VecNormalize`` that has seen no
                data takes them, and one with statistics of its own keeps these, with a warning. Without an
                environment, :meth:`predict` normalises with them by itself.
            device: where to put the model.
            custom_objects: hyper-parameters to use instead of the file's, which are then not read; also
                ``observation_space``, ``action_space`` and ``policy_class``.
            print_system_info: print the versions that wrote the file, and the present ones.
            force_reset: start new episodes at the next ``learn``; ``False`` continues from the file's last
                observations.
            trust: also load pickled values, such as a lambda given as ``learning_rate``. They can run any code: set
                this only for files that you trust.
            resume: also take the file's random states, the state of the environments and, if the file has one, its
                replay buffer, so that training continues as if it had not been interrupted, whatever ``force_reset``
                says. Where the state of the environments is unknown, new episodes begin, with a warning: with a
                ``seed``, their seeds follow from it and the number of steps.
            kwargs: hyper-parameters to change.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: not a model file, or one of another algorithm, or it does not fit ``env``, or a ``kwargs`` does
                not fit what was learned.
        """
        return checkpoint.load(
            cls,
            path,
            env=env,
            device=device,
            custom_objects=custom_objects or {},
            overrides=kwargs,
            print_system_info=print_system_info,
            force_reset=force_reset,
            trust=trust,
            resume=resume,
        )


def _end_in_spite(callback: BaseCallback) -> None:
    """Let callbacks end after an error, which what they raise must not hide."""
    try:
        callback.on_training_end()
    except Exception as error:
        warn_user(f"a callback raised {error!r} in on_training_end(), after training had failed.")


setattr(Algorithm, "load", _Loader(Algorithm.__dict__["load"].__func__))  # noqa: B010  # type checkers see the classmethod
