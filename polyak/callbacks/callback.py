"""Code that runs while a model learns: checkpoints, evaluation, early stopping, a progress bar, a user's own.

The model is the one that learns. Callbacks use its ``num_timesteps``, ``logger``, ``seed``, ``n_envs``,
``get_env()``, ``get_vec_normalize_env()``, ``save()``, ``save_replay_buffer()`` and ``dump_logs()``.
"""
# ruff: noqa: B027  (hooks are empty until a subclass defines them)

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from polyak.archive import replacing
from polyak.callbacks.watched import Watched
from polyak.envs import VecEnv, sync_envs_normalization
from polyak.evaluation.evaluation_log import Evaluations, read_evaluations
from polyak.evaluation.in_environments import as_vector, evaluate_policy, fitted
from polyak.evaluation.shared_environments import check_not_in_use, share_environments
from polyak.evaluation.undisturbed import undisturbed
from polyak.hyperparameters.declaration import whole
from polyak.logging.logger import Logger
from polyak.seeding import derived_seed
from polyak.warning import advise, warn_user

CallbackFunction = Callable[[dict[str, Any], dict[str, Any]], bool]
Unit = Literal["calls", "timesteps"]
FileFormat = Literal["polyak", "sb3"]


class Published(dict[str, Any]):
    """The ``locals`` of a training loop; expensive entries are computed when they are read.

    Args:
        entries: by name.
        compute: called once for further entries; existing names keep their values.
    """

    def __init__(self, entries: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(entries)
        self.compute = compute
        self._computed: Mapping[str, Any] | None = None

    def later(self) -> Mapping[str, Any]:
        """The further entries."""
        if self._computed is None:
            self._computed = {name: value for name, value in self.compute().items() if name not in self}
        return self._computed


class BaseCallback(ABC):
    """Code that runs while a model learns. Subclass it and write ``_on_step`` and other hooks that start with ``_on``.

    Attributes:
        model: the model that learns.
        n_calls: calls of ``on_step`` so far.
        num_timesteps: environment steps so far, over all environments.
        locals, globals: what the training loop publishes: ``self`` (the model), ``infos``, ``rewards``, ``dones``,
            ``new_obs``, ``actions`` ..., renewed at every step. On-policy algorithms compute ``values``,
            ``log_probs`` and ``obs_tensor`` when ``locals`` is read.
        parent: the callback that this one is a child of, if any.

    Args:
        verbose: 0 prints nothing, 1 information, 2 debugging messages.
    """

    model: Watched
    # Not inherited: a subclass of a callback that does not read the loop's variables may do so.
    _reads_locals: bool
    _locals: dict[str, Any]
    _later: Callable[[], Mapping[str, Any]] | None

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
        """What the training loop publishes."""
        if self._later is not None:
            later, self._later = self._later, None
            self._locals.update(later())
        return self._locals

    @locals.setter
    def locals(self, value: dict[str, Any]) -> None:
        self._locals, self._later = value, getattr(value, "later", None)

    @property
    def needs_locals(self) -> bool:
        """Whether ``self.locals`` must be renewed at every step.

        True unless the class itself says otherwise. A subclass that does not read ``self.locals`` in ``_on_step`` may
        set ``needs_locals = False`` and spare the training loop the work.
        """
        return vars(type(self)).get("_reads_locals", True)

    @property
    def is_idle(self) -> bool:
        """Whether :meth:`on_step` would call nothing, so that the training loop need not call it."""
        return False

    @property
    def training_env(self) -> VecEnv:
        """The environment that the model learns in."""
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
            TypeError: the class has an ``__init__`` that does not call the one of :class:`BaseCallback`.
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
            whether to continue.
        """
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        keep_going = self._on_step()
        if keep_going is None and not self._has_warned:
            self._has_warned = True
            warn_user(f"{self!r} returned None, which stops training as False does. Return True to continue.")
        return bool(keep_going)

    def on_rollout_end(self) -> None:
        """Called after experience is collected, before the update."""
        self._on_rollout_end()

    def on_training_end(self) -> None:
        """Called once, when training is over."""
        self._on_training_end()

    def update_locals(self, locals_: dict[str, Any]) -> None:
        """Renew ``self.locals``, and the children's."""
        self._locals.update(locals_)
        self._later = getattr(locals_, "later", None)
        self.update_child_locals(locals_)

    def update_child_locals(self, locals_: dict[str, Any]) -> None:
        """Renew the children's ``locals``."""

    # -- to write in a subclass ----------------------------------------------------------------------------------------

    def _init_callback(self) -> None:
        """The model is known now."""

    def _on_training_start(self) -> None:
        """Training begins."""

    def _on_rollout_start(self) -> None:
        """A rollout begins."""

    @abstractmethod
    def _on_step(self) -> bool:
        """A step was made. Return ``False`` to stop training."""

    def _on_rollout_end(self) -> None:
        """A rollout is complete."""

    def _on_training_end(self) -> None:
        """Training is over."""


MaybeCallback = BaseCallback | CallbackFunction | Sequence[BaseCallback | CallbackFunction] | None


# -- callbacks that hold others ----------------------------------------------------------------------------------------


class ConvertCallback(BaseCallback):
    """A function as a callback.

    Args:
        callback: called at every step as ``callback(locals, globals)``; it returns whether to continue; ``None``: none.
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
    """A callback with children: they are called at the start and end of training, and share its ``locals``."""

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
    """Several callbacks, called in order; every one is called even if one before it stops training.

    Args:
        callbacks: callbacks, or functions as :class:`ConvertCallback` takes them.

    Raises:
        TypeError: one is neither.
    """

    _reads_locals = False

    def __init__(self, callbacks: Sequence[BaseCallback | CallbackFunction]) -> None:
        super().__init__()
        self.callbacks = [_as_object(callback) for callback in callbacks]

    def _children(self) -> list[BaseCallback]:
        return self.callbacks

    @property
    def is_idle(self) -> bool:
        return type(self) is CallbackList and not self.callbacks

    def _init_callback(self) -> None:
        self._relay("init_callback", self.model)
        for child in self.callbacks:
            child.parent = self.parent  # some look for an EvalCallback above them

    def _on_step(self) -> bool:
        return False not in [child.on_step() for child in self.callbacks]

    def _on_rollout_start(self) -> None:
        self._relay("on_rollout_start")

    def _on_rollout_end(self) -> None:
        self._relay("on_rollout_end")


class EventCallback(_Parent):
    """A callback that steps another one when something happens.

    The child is called at the start and the end of training, and at the event (``_on_step``), but not for rollouts.

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
        child = _as_object(callback)
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


def as_callback(maybe_callback: Any, model: Any, progress_bar: bool = False) -> BaseCallback:
    """The ``callback`` argument of ``learn`` as one callback that is attached to the model.

    Args:
        maybe_callback: ``None``, a callback, a function, or a sequence of callbacks and functions.
        model: the model that learns.
        progress_bar: add a :class:`ProgressBarCallback`.

    Raises:
        TypeError: it is none of these.
        ImportError: a progress bar is asked for and its packages are not installed.
    """
    if maybe_callback is None:
        callback: BaseCallback = CallbackList([])
    elif isinstance(maybe_callback, list | tuple):
        callback = CallbackList(maybe_callback)
    else:
        callback = _as_object(maybe_callback)
    if progress_bar:
        callback = CallbackList([callback, ProgressBarCallback()])
    callback.init_callback(model)
    return callback


def _as_object(callback: BaseCallback | CallbackFunction) -> BaseCallback:
    if isinstance(callback, BaseCallback):
        return callback
    if isinstance(callback, type) or not callable(callback):
        raise TypeError(
            "callback must be a BaseCallback object, a function of (locals, globals) or a list of them, got "
            f"{callback!r}."
        )
    return ConvertCallback(callback)


# -- saving and evaluating ---------------------------------------------------------------------------------------------


class Clock:
    """Counts calls or environment steps until something is due."""

    def __init__(self, unit: Unit) -> None:
        if unit not in ("calls", "timesteps"):
            raise ValueError(f"unit must be 'calls' or 'timesteps', got {unit!r}.")
        self.unit = unit
        self.last = 0

    def restart(self, callback: BaseCallback, freq: int) -> None:
        """Start counting; warn if ``freq`` calls are more than the training has."""
        self.last = callback.num_timesteps
        total, n_envs = getattr(callback.model, "_total_timesteps", 0), getattr(callback.model, "n_envs", 1)
        if self.unit == "calls" and n_envs > 1 and freq <= total < freq * n_envs:
            advise(
                f"{type(callback).__name__} counts calls",
                f"{type(callback).__name__} counts calls, and each is {n_envs} environment steps (n_envs={n_envs}): "
                f"{freq} calls are {freq * n_envs} steps, more than the {total} of this training, so that it never "
                f"acts. Divide by n_envs, or pass unit='timesteps'.",
            )

    def due(self, freq: int, callback: BaseCallback) -> bool:
        if freq <= 0:
            return False
        if self.unit == "calls":
            return callback.n_calls % freq == 0
        before, self.last = self.last, callback.num_timesteps
        return self.last // freq > before // freq


def _saver(file_format: str) -> str:
    """The method of models and of ``VecNormalize`` that writes a format."""
    methods = {"polyak": "save", "sb3": "save_sb3"}
    if file_format not in methods:
        raise ValueError(f"file_format must be 'polyak' or 'sb3', got {file_format!r}.")
    return methods[file_format]


class CheckpointCallback(BaseCallback):
    """Save the model every ``save_freq`` calls, that is ``save_freq * n_envs`` environment steps.

    Files are ``<prefix>_<steps>_steps.zip``, ``<prefix>_replay_buffer_<steps>_steps.pkl`` and
    ``<prefix>_vecnormalize_<steps>_steps.pkl``.

    Args:
        save_freq: calls (or, see ``unit``, environment steps) between two checkpoints.
        save_path: folder; made if missing.
        name_prefix: how the names of the files begin.
        save_replay_buffer: save the replay buffer too, if the model has one.
        save_vecnormalize: save the normalisation statistics too, if the environment has them.
        verbose: 2 prints every file.
        unit: ``"calls"`` counts steps of the vector of environments, ``"timesteps"`` those of all environments.
        file_format: ``"sb3"`` writes models and statistics for Stable-Baselines3.

    Raises:
        ValueError: ``save_freq`` is less than 1, or an unknown ``unit`` or ``file_format``.
    """

    _reads_locals = False

    def __init__(
        self,
        save_freq: int,
        save_path: str | os.PathLike[str],
        name_prefix: str = "rl_model",
        save_replay_buffer: bool = False,
        save_vecnormalize: bool = False,
        verbose: int = 0,
        *,
        unit: Unit = "calls",
        file_format: FileFormat = "polyak",
    ) -> None:
        super().__init__(verbose)
        self._saver = _saver(file_format)
        self.save_freq = whole("save_freq", save_freq)
        if save_freq < 1:
            raise ValueError(
                f"save_freq must be at least 1, got {save_freq!r}. Leave the callback out to save nothing."
            )
        self.save_path = os.path.expanduser(save_path)
        self.name_prefix = name_prefix
        self.save_replay_buffer = save_replay_buffer
        self.save_vecnormalize = save_vecnormalize
        self._clock = Clock(unit)

    def _init_callback(self) -> None:
        os.makedirs(self.save_path, exist_ok=True)

    def _on_training_start(self) -> None:
        self._clock.restart(self, self.save_freq)

    def _checkpoint_path(self, checkpoint_type: str = "", extension: str = "") -> str:
        name = f"{self.name_prefix}_{checkpoint_type}{self.num_timesteps}_steps.{extension}"
        return os.path.join(self.save_path, name)

    def _on_step(self) -> bool:
        if not self._clock.due(self.save_freq, self):
            return True
        self._save("model", getattr(self.model, self._saver), self._checkpoint_path(extension="zip"))
        if self.save_replay_buffer and getattr(self.model, "replay_buffer", None) is not None:
            path = self._checkpoint_path("replay_buffer_", "pkl")
            self._save("replay buffer", self.model.save_replay_buffer, path)
        if self.save_vecnormalize and (normalize := self.model.get_vec_normalize_env()) is not None:
            save = getattr(normalize, self._saver)
            self._save("VecNormalize", save, self._checkpoint_path("vecnormalize_", "pkl"))
        return True

    def _save(self, what: str, save: Callable[[str], Any], path: str) -> None:
        save(path)
        if self.verbose >= 2:
            print(f"Saved the {what} to {path}")


class EvalCallback(EventCallback):
    """Evaluate the model every ``eval_freq`` calls, that is ``eval_freq * n_envs`` environment steps.

    Each evaluation logs ``eval/mean_reward``, ``eval/mean_ep_length`` and, if episodes end with
    ``info["is_success"]``, ``eval/success_rate``.

    Evaluation does not affect training: with and without it a model learns the same, bit for bit (see
    :func:`~polyak.evaluation.undisturbed.undisturbed`). If the model has a seed, every evaluation is seeded by it
    and by the number of environment steps (see :func:`evaluation_seed`): equal seeds give equal evaluations, and any
    one of them can be repeated.

    If training resumes (``learn(reset_num_timesteps=False)`` of a model that has learned before), a callback that has
    not evaluated yet continues the ``evaluations.npz`` that it finds in ``log_path``, and replaces ``best_model.zip``
    only by a better one. If the return of that model is unknown, its file is renamed, with a warning. Otherwise both
    files are started again.

    Args:
        eval_env: where to evaluate, wrapped as the training environment is; or a registered name: one such environment,
            normalised if the training environment is.
        callback_on_new_best: stepped when the mean return is the best so far.
        callback_after_eval: stepped after every evaluation.
        n_eval_episodes: episodes of an evaluation.
        eval_freq: calls (or, see ``unit``, environment steps) between two evaluations; 0 or less: never.
        log_path: folder of ``evaluations.npz`` (``timesteps`` [n], ``results`` and ``ep_lengths`` [n, episodes], and
            ``successes`` if known); ``None`` writes none.
        best_model_save_path: folder of ``best_model.zip``; ``None`` writes none.
        deterministic: the policy's best action instead of a sample.
        render: show the evaluation.
        verbose: 1 prints the results.
        warn: say so if returns are not measured by a ``Monitor``, or if the environments are wrapped differently.
        unit: ``"calls"`` counts steps of the vector of environments, ``"timesteps"`` those of all environments.
        seed: takes the place of the model's seed.
        max_steps_per_episode: cut an evaluation episode after so many steps, with a warning.
        file_format: ``"sb3"`` writes the best model for Stable-Baselines3.

    Raises:
        ValueError: ``n_eval_episodes`` is less than 1, or an unknown ``unit``, ``file_format`` or name; when training
            begins, a named environment with other spaces than the model's, or a damaged ``evaluations.npz`` that is to
            be continued.
        AssertionError: the training environment is normalised and ``eval_env`` is not.
    """

    _reads_locals = False
    use_masking = True
    """Whether to apply the environment's action masks, if the model supports them."""

    def __init__(
        self,
        eval_env: gym.Env | VecEnv | str,
        callback_on_new_best: BaseCallback | CallbackFunction | None = None,
        callback_after_eval: BaseCallback | CallbackFunction | None = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10000,
        log_path: str | os.PathLike[str] | None = None,
        best_model_save_path: str | os.PathLike[str] | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
        *,
        unit: Unit = "calls",
        seed: int | None = None,
        max_steps_per_episode: int | None = None,
        file_format: FileFormat = "polyak",
    ) -> None:
        super().__init__(callback_after_eval, verbose=verbose)
        self._saver = _saver(file_format)
        self.n_eval_episodes = whole("n_eval_episodes", n_eval_episodes)
        self.eval_freq = whole("eval_freq", eval_freq)
        if n_eval_episodes < 1:
            raise ValueError(f"n_eval_episodes must be at least 1, got {n_eval_episodes!r}.")
        self.callback_on_new_best = self._adopt(callback_on_new_best)
        self.eval_env = as_vector(eval_env)
        self._env_name = eval_env if isinstance(eval_env, str) else None
        self.best_mean_reward = -np.inf
        self.last_mean_reward = -np.inf
        self.deterministic = deterministic
        self.render = render
        self.warn = warn
        self.seed = seed
        self.max_steps_per_episode = max_steps_per_episode
        self.best_model_save_path = None if best_model_save_path is None else os.path.expanduser(best_model_save_path)
        self.log_path = None if log_path is None else os.path.join(os.path.expanduser(log_path), "evaluations")
        self.evaluations_timesteps: list[int] = []
        self.evaluations_results: list[list[float]] = []
        self.evaluations_length: list[list[int]] = []
        self.evaluations_successes: list[list[bool]] = []
        self._is_success_buffer: list[bool] = []
        self._clock = Clock(unit)
        self._resumed_at = 0
        self._put_aside: set[Path] = set()
        """Files of an earlier run that are renamed before others take their names."""

    def _children(self) -> list[BaseCallback]:
        new_best = self.callback_on_new_best
        return super()._children() + ([] if new_best is None else [new_best])

    def _init_callback(self) -> None:
        training_env = self.model.get_env()  # None while it learns from data
        if self._env_name is not None:
            self.eval_env = fitted(self._env_name, self.eval_env, training_env, training_env or self.model)
        elif training_env is not None and not isinstance(training_env, type(self.eval_env)):
            warn_user(
                f"eval_env is wrapped in another way than the training environment: {self.eval_env} and "
                f"{training_env}. Wrap both alike, unless the difference is meant.",
                UserWarning,
            )
        check_not_in_use(self.eval_env)
        if training_env is not None and share_environments(self.eval_env, training_env):
            warn_user(
                "eval_env is the training environment itself: each evaluation cuts the episodes that training is in, "
                "which count as truncated. Make a second environment for evaluation.",
                UserWarning,
            )
        if self.best_model_save_path is not None:
            os.makedirs(self.best_model_save_path, exist_ok=True)
        if self.log_path is not None:
            os.makedirs(os.path.dirname(self.log_path) or ".", exist_ok=True)

    def _on_training_start(self) -> None:
        self._clock.restart(self, self.eval_freq)
        if self.num_timesteps > 0 and not self.evaluations_timesteps and self.best_mean_reward == -np.inf:
            self._continue_files()
        super()._on_training_start()

    @property
    def _log_file(self) -> Path | None:
        return None if self.log_path is None else Path(self.log_path + ".npz")

    @property
    def _best_file(self) -> Path | None:
        return None if self.best_model_save_path is None else Path(self.best_model_save_path, "best_model.zip")

    def _continue_files(self) -> None:
        """Training resumes: continue what evaluations of an earlier run have written."""
        self._resumed_at = self.num_timesteps
        log, best = self._log_file, self._best_file
        if log is not None and log.is_file():
            self._continue_log(log)
        if best is None:
            return
        if not best.is_file():  # nothing can be lost, and something has to be saved
            self.best_mean_reward = -np.inf
        elif self.best_mean_reward == -np.inf:
            self._set_aside(best, "the return of the model in it is not known: there is no evaluations.npz in log_path")

    def _continue_log(self, log: Path) -> None:
        earlier = read_evaluations(log)
        self.best_mean_reward = earlier.best
        kept = earlier.until(self.num_timesteps)
        if any(len(returns) != self.n_eval_episodes for returns in kept.results):
            episodes = len(kept.results[0])
            self._set_aside(log, f"its evaluations have {episodes} episodes, those to come {self.n_eval_episodes}")
            return
        self.evaluations_timesteps, self.evaluations_results = kept.timesteps, kept.results
        self.evaluations_length, self.evaluations_successes = kept.lengths, kept.successes
        if self.verbose >= 1:
            print(f"Continuing {log}: best mean reward so far {self.best_mean_reward:.2f}")

    def _set_aside(self, path: Path, reason: str) -> None:
        self._put_aside.add(path)
        warn_user(
            f"training resumes, and {str(path)!r} is not continued: {reason}. It is kept as "
            f"{self._aside(path).name!r} when another takes its place.",
            UserWarning,
        )

    def _aside(self, path: Path) -> Path:
        return path.with_name(f"{path.stem}_until_{self._resumed_at}_steps{path.suffix}")

    def _make_way(self, path: Path | None) -> None:
        """Before a file is written: rename what has to be kept of that name."""
        if path is not None and path in self._put_aside:
            self._put_aside.remove(path)
            os.replace(path, self._aside(path))

    def _log_success_callback(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Note whether an evaluation episode that ended was a success."""
        if locals_["done"] and (success := locals_["info"].get("is_success")) is not None:
            self._is_success_buffer.append(success)

    def _on_step(self) -> bool:
        if not self._clock.due(self.eval_freq, self):
            return True
        if (training_env := self.model.get_env()) is not None:
            sync_envs_normalization(training_env, self.eval_env)
        returns, lengths = self._evaluate()
        self._write_evaluations(returns, lengths)
        self._log_evaluation(returns, lengths)
        keep_going = True
        if self.last_mean_reward > self.best_mean_reward:
            keep_going = self._on_new_best()
        return keep_going and self._on_event()

    def _evaluate(self) -> tuple[list[float], list[int]]:
        """Returns and lengths of the evaluation episodes."""
        self._is_success_buffer = []
        seed = self.seed if self.seed is not None else getattr(self.model, "seed", None)
        seed = None if seed is None else evaluation_seed(seed, self.num_timesteps)
        with undisturbed(self.model, seed):
            if seed is not None:
                self.eval_env.seed(seed)
            return evaluate_policy(
                self.model,
                self.eval_env,
                n_eval_episodes=self.n_eval_episodes,
                render=self.render,
                deterministic=self.deterministic,
                return_episode_rewards=True,
                warn=self.warn,
                callback=self._log_success_callback,
                max_steps_per_episode=self.max_steps_per_episode,
                use_masking=self.use_masking,
            )  # type: ignore[return-value]

    def _write_evaluations(self, returns: list[float], lengths: list[int]) -> None:
        if (log := self._log_file) is None:
            return
        self.evaluations_timesteps.append(self.num_timesteps)
        self.evaluations_results.append(returns)
        self.evaluations_length.append(lengths)
        if self._is_success_buffer:
            self.evaluations_successes.append(self._is_success_buffer)
        columns = self.evaluations_timesteps, self.evaluations_results, self.evaluations_length
        evaluations = Evaluations(*columns, self.evaluations_successes, self.best_mean_reward)
        self._make_way(log)
        # A plot drawn meanwhile, or after a crash, must never meet half a file.
        with replacing(log) as file:
            np.savez(file, **evaluations.arrays())

    def _log_evaluation(self, returns: list[float], lengths: list[int]) -> None:
        mean_return, mean_length = float(np.mean(returns)), float(np.mean(lengths))
        self.last_mean_reward = mean_return
        self.logger.record("eval/mean_reward", mean_return)
        self.logger.record("eval/mean_ep_length", mean_length)
        if self.verbose >= 1:
            print(
                f"Eval num_timesteps={self.num_timesteps}, episode_reward={mean_return:.2f} +/- {np.std(returns):.2f}"
            )
            print(f"Episode length: {mean_length:.2f} +/- {np.std(lengths):.2f}")
        if self._is_success_buffer:
            success_rate = float(np.mean(self._is_success_buffer))
            self.logger.record("eval/success_rate", success_rate)
            if self.verbose >= 1:
                print(f"Success rate: {100 * success_rate:.2f}%")
        # TensorBoard has the number of steps as its own axis.
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)

    def _on_new_best(self) -> bool:
        if self.verbose >= 1:
            print("New best mean reward!")
        if self.best_model_save_path is not None:
            self._make_way(self._best_file)
            getattr(self.model, self._saver)(os.path.join(self.best_model_save_path, "best_model"))
        self.best_mean_reward = self.last_mean_reward
        return True if self.callback_on_new_best is None else self.callback_on_new_best.on_step()


def evaluation_seed(seed: int, num_timesteps: int) -> int:
    """The seed of the evaluation that :class:`EvalCallback` makes after ``num_timesteps`` of a model seeded ``seed``.

    ``evaluate(model, env, n_episodes, seed=evaluation_seed(seed, num_timesteps))`` repeats it.
    """
    return derived_seed(seed, num_timesteps)


# -- stopping ----------------------------------------------------------------------------------------------------------


class StopTrainingOnRewardThreshold(BaseCallback):
    """Stop once the best mean return of an evaluation reaches a threshold.

    A child of :class:`EvalCallback`: pass it as its ``callback_on_new_best``.

    Args:
        reward_threshold: the return that is enough.
        verbose: 1 prints why training stops.
    """

    _reads_locals = False

    def __init__(self, reward_threshold: float, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.reward_threshold = reward_threshold

    def _on_step(self) -> bool:
        best = _evaluation_above(self).best_mean_reward
        keep_going = bool(best < self.reward_threshold)
        if not keep_going and self.verbose >= 1:
            print(f"Training stops: the mean return {best:.2f} reaches reward_threshold={self.reward_threshold}")
        return keep_going


class StopTrainingOnNoModelImprovement(BaseCallback):
    """Stop after several evaluations in a row without a new best.

    A child of :class:`EvalCallback`: pass it as its ``callback_after_eval``.

    Args:
        max_no_improvement_evals: evaluations in a row without a new best that are allowed; one more stops training.
        min_evals: evaluations before counting starts.
        verbose: 1 prints why training stops.
    """

    _reads_locals = False

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.max_no_improvement_evals = max_no_improvement_evals
        self.min_evals = min_evals
        self.last_best_mean_reward = -np.inf
        self.no_improvement_evals = 0

    def _on_step(self) -> bool:
        best = _evaluation_above(self).best_mean_reward
        if self.n_calls > self.min_evals:
            self.no_improvement_evals = 0 if best > self.last_best_mean_reward else self.no_improvement_evals + 1
        self.last_best_mean_reward = best
        keep_going = self.no_improvement_evals <= self.max_no_improvement_evals
        if not keep_going and self.verbose >= 1:
            n = self.no_improvement_evals
            print(f"Training stops: {n} evaluations in a row brought no new best")
        return keep_going


def _evaluation_above(callback: BaseCallback) -> Any:
    """The EvalCallback that ``callback`` is a child of."""
    if not hasattr(callback.parent, "best_mean_reward"):
        raise AssertionError(
            f"{type(callback).__name__} must be used with an EvalCallback: pass it as its callback_on_new_best or "
            "callback_after_eval instead of to learn()."
        )
    return callback.parent


class StopTrainingOnMaxEpisodes(BaseCallback):
    """Stop after a number of episodes: ``max_episodes`` per environment on average.

    Args:
        max_episodes: episodes, to be multiplied by the number of environments.
        verbose: 1 prints why training stops.

    Raises:
        ValueError: ``max_episodes`` is less than 1.
    """

    def __init__(self, max_episodes: int, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.max_episodes = whole("max_episodes", max_episodes)
        if max_episodes < 1:
            raise ValueError(f"max_episodes must be at least 1, got {max_episodes!r}.")
        self._total_max_episodes = self.max_episodes
        self.n_episodes = 0

    def _init_callback(self) -> None:
        self._total_max_episodes = self.max_episodes * self.training_env.num_envs

    def _on_step(self) -> bool:
        self.n_episodes += int(np.sum(self.locals["dones"]))
        keep_going = self.n_episodes < self._total_max_episodes
        if not keep_going and self.verbose >= 1:
            n_envs = self.training_env.num_envs
            mean = f" ({self.n_episodes / n_envs:.2f} per environment)" if n_envs > 1 else ""
            print(
                f"Training stops after {self.num_timesteps} steps: {type(self.model).__name__} has played "
                f"{self.n_episodes} episodes{mean}, as max_episodes={self.max_episodes} asks"
            )
        return keep_going


# -- periodic events ---------------------------------------------------------------------------------------------------


class EveryNTimesteps(EventCallback):
    """Step another callback every ``n_steps`` environment steps, counted over all environments.

    Args:
        n_steps: environment steps between two events.
        callback: what to step.

    Raises:
        ValueError: ``n_steps`` is less than 1.
    """

    _reads_locals = False

    def __init__(self, n_steps: int, callback: BaseCallback | CallbackFunction | None) -> None:
        super().__init__(callback)
        self.n_steps = whole("n_steps", n_steps)
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps!r}.")
        self.last_time_trigger = 0

    def _on_training_start(self) -> None:
        # A second learn() may start counting at zero again.
        self.last_time_trigger = min(self.last_time_trigger, self.num_timesteps)
        super()._on_training_start()

    def _on_step(self) -> bool:
        if self.num_timesteps - self.last_time_trigger < self.n_steps:
            return True
        self.last_time_trigger = self.num_timesteps
        return self._on_event()


class LogEveryNTimesteps(EveryNTimesteps):
    """Write the log table every ``n_steps`` environment steps; pass ``log_interval=None`` to ``learn`` with it.

    Args:
        n_steps: environment steps between two tables.
    """

    _reads_locals = False

    def __init__(self, n_steps: int) -> None:
        super().__init__(n_steps, None)

    def _on_event(self) -> bool:
        self.model.dump_logs()
        return True


class ProgressBarCallback(BaseCallback):
    """Show how far training is.

    Raises:
        ImportError: tqdm or rich is not installed.
    """

    _reads_locals = False
    pbar: Any

    def __init__(self) -> None:
        super().__init__()
        try:
            from tqdm import TqdmExperimentalWarning
            from tqdm.rich import tqdm
        except ImportError as error:
            raise ImportError("the progress bar needs tqdm and rich: pip install 'polyak[extra]'") from error
        self._make_bar = tqdm
        self._experimental = TqdmExperimentalWarning
        self._n_shown = 0

    def _on_training_start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._experimental)
            self.pbar = self._make_bar(total=self.model._total_timesteps - self.num_timesteps)
        self._n_shown = self.num_timesteps

    def _on_step(self) -> bool:
        # The last rollout is finished, past the steps that were asked for.
        reached = min(self.num_timesteps, self.model._total_timesteps)
        self.pbar.update(reached - self._n_shown)
        self._n_shown = reached
        return True

    def _on_training_end(self) -> None:
        self.pbar.refresh()
        self.pbar.close()
