"""Several environments stepped as one: the contract (``VecEnv``) and the base of everything that wraps it.

Stable-Baselines3's contract: ``reset() -> obs``; ``step(actions) -> obs, rewards, dones, infos``. An environment that
ends is reset at once; the observation it ended with is ``infos[i]["terminal_observation"]`` and
``infos[i]["TimeLimit.truncated"]`` says whether it was cut off (truncated and not terminated).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.extras import needed
from polyak.envs.nested_spaces import is_composed
from polyak.envs.state import EnvStateError, attributes_of, check_class, load_attributes
from polyak.envs.vec.seeds import seeds_of
from polyak.envs.wrapper_statistics import Found, found_in, put_into
from polyak.warning import warn_user

VecEnvIndices: TypeAlias = int | Iterable[int] | None
"""The chosen environments: all (None), one, or several."""

VecEnvObs: TypeAlias = np.ndarray | dict[str, np.ndarray] | tuple[np.ndarray, ...]
"""Batched observation, leading dimension ``num_envs``; a Dict space gives a dict, a Tuple space a tuple."""

VecEnvStepReturn: TypeAlias = tuple[VecEnvObs, np.ndarray, np.ndarray, list[dict[str, Any]]]
"""Observations, rewards ``[N]`` float32, dones ``[N]`` bool, one info dict per environment."""

Wrapper = TypeVar("Wrapper", bound="VecEnvWrapper")


class VecEnv(ABC):
    """Several environments of the same spaces, stepped as one.

    Args:
        num_envs: how many.
        observation_space: of one environment.
        action_space: of one environment.
    """

    num_envs: int
    observation_space: spaces.Space
    action_space: spaces.Space
    render_mode: str | None
    metadata: dict[str, Any]
    reset_infos: list[dict[str, Any]]
    """The info dicts of the last reset of each environment."""
    resets: int = 0
    """How often all environments were reset, counted by the innermost VecEnv (``unwrapped``). Training compares it to
    detect that another program has used its environments."""

    def __init__(self, num_envs: int, observation_space: spaces.Space, action_space: spaces.Space):
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self.reset_infos = [{} for _ in range(num_envs)]
        self._seeds: list[int | None] = [None] * num_envs
        self._options: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self.render_mode = self._common_render_mode()
        if not hasattr(self, "metadata"):
            self.metadata = {"render_modes": _supported_render_modes(self.render_mode)}

    def __repr__(self) -> str:
        count = "1 environment" if self.num_envs == 1 else f"{self.num_envs} environments"
        return f"<{type(self).__name__} of {count}: {self.observation_space} -> {self.action_space}>"

    def _common_render_mode(self) -> str | None:
        try:
            modes = self.get_attr("render_mode")
        except AttributeError:
            warn_user("The environments have no `render_mode`, None is assumed. Set it in their __init__.")
            return None
        if any(mode != modes[0] for mode in modes):
            raise ValueError(f"render_mode must be the same for all environments, got {modes}.")
        return modes[0]

    # --- state ---

    def get_state(self) -> dict[str, Any]:
        """Returns everything that determines the environments' next steps, as plain data: see :mod:`polyak.envs.state`.

        Raises:
            EnvStateError: it cannot be read; the message names the part.
        """
        raise EnvStateError(
            f"{type(self).__name__} does not define its state. Give it get_state() and set_state(state), or use "
            "DummyVecEnv or SubprocVecEnv."
        )

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state that :meth:`get_state` of an equally made vector returned.

        Raises:
            EnvStateError: the state is of another kind of environment.
        """
        raise EnvStateError(f"{type(self).__name__} cannot be put into a state: it has no set_state() of its own.")

    def get_statistics(self, indices: VecEnvIndices = None) -> list[Found]:
        """The running statistics that wrappers of the chosen environments hold, such as Gymnasium's
        ``NormalizeObservation``; those of ``VecNormalize`` are not among them. See
        :mod:`polyak.envs.wrapper_statistics`.

        Raises:
            EnvStateError: there are some, and they cannot be read.
        """
        return [{} for _ in self._get_indices(indices)]

    def set_statistics(self, found: list[Found], indices: VecEnvIndices = None) -> None:
        """Give the chosen environments statistics of :meth:`get_statistics`, one item each; those not named stay.

        Raises:
            EnvStateError: they have no such statistics.
        """
        if any(found):
            raise EnvStateError(f"{type(self).__name__} has no statistics {sorted(found[0])}.")

    # --- stepping ---

    @abstractmethod
    def reset(self) -> VecEnvObs:
        """Reset all environments and return their first observations; seeds and options set before are used once."""

    @abstractmethod
    def step_async(self, actions: Any) -> None:
        """Start one step of every environment; the result comes from :meth:`step_wait`."""

    @abstractmethod
    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step that :meth:`step_async` started and return its result."""

    def step(self, actions: Any) -> VecEnvStepReturn:
        """Step every environment with its action; those that end are reset.

        Args:
            actions: [N, ...]; of a Dict or Tuple space a list of N actions, each as its environment takes it.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_rows(self, actions: Any) -> tuple[VecEnvObs, np.ndarray, np.ndarray, Sequence[dict[str, Any]]]:
        """Steps like :meth:`step`, for training: there must be an action for each environment, and infos may be made
        when they are first read, which must be before the next step."""
        return self.step(actions)

    @property
    def steps_in_rows(self) -> bool:
        """Whether :meth:`step_rows` is equivalent to :meth:`step`: neither a subclass nor the object overrides the
        step."""
        stepping = {"step", "step_async", "step_wait", "step_rows"}
        found = (vars(each) for each in (self, *type(self).__mro__))
        return "step_rows" in next(names for names in found if names.keys() & stepping)

    @abstractmethod
    def close(self) -> None:
        """Free the environments' resources."""

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Choose the seeds of the next reset: see :func:`~polyak.envs.vec.seeds.seeds_of`.

        Args:
            seed: of the first environment, and the root of the others' seeds; None draws it from numpy's global
                generator.

        Returns:
            the seed of each environment.
        """
        if seed is None:
            seed = int(np.random.randint(0, np.iinfo(np.uint32).max, dtype=np.uint32))
        self._seeds = [*seeds_of(seed, self.num_envs)]
        return self._seeds

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Choose the ``options`` of the next reset.

        Args:
            options: one dict for all, a list with one dict per environment, or None for none.

        Raises:
            ValueError: when the list is not ``num_envs`` long.
        """
        if options is None:
            options = {}
        if isinstance(options, dict):
            self._options = [copy.deepcopy(options) for _ in range(self.num_envs)]
            return
        if len(options) != self.num_envs:
            raise ValueError(f"options must be one dict or {self.num_envs} dicts (num_envs), got {len(options)}.")
        self._options = copy.deepcopy(list(options))

    def _reset_seeds(self) -> None:
        self._seeds = [None] * self.num_envs

    def _reset_options(self) -> None:
        self._options = [{} for _ in range(self.num_envs)]

    # --- reaching into the environments ---

    @abstractmethod
    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Read an attribute of each chosen environment, looking through its wrappers."""

    @abstractmethod
    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of each chosen environment, on the wrapper that owns it, else on the bare environment."""

    @abstractmethod
    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each chosen environment and return the results."""

    @abstractmethod
    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """Returns for each chosen environment whether one of its wrappers is a ``wrapper_class``."""

    def has_attr(self, attr_name: str) -> bool:
        """Whether every environment has the attribute."""
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def attr_of_first(self, attr_name: str, default: Any) -> Any:
        """Returns an attribute of the first environment; ``default`` if it has none, or there are no single
        environments."""
        try:
            return self.get_attr(attr_name, 0)[0]
        except (AttributeError, NotImplementedError):
            return default

    def _get_indices(self, indices: VecEnvIndices) -> Iterable[int]:
        if indices is None:
            return range(self.num_envs)
        if isinstance(indices, (int, np.integer)):
            return [int(indices)]
        return indices

    def _batch_of_actions(self, actions: Any) -> Any:
        """Returns ``actions`` with one entry per environment; a vector of one also accepts a single action.

        Actions of a Dict or Tuple space are a list with one for each environment. Surplus actions are left out, with a
        warning.

        Raises:
            ValueError: there are fewer.
        """
        if isinstance(actions, np.ndarray):
            if self.num_envs == 1 and actions.shape == self.action_space.shape:
                return actions[None]
            if actions.shape[:1] == (self.num_envs,):
                return actions
        return self._checked_actions(actions)

    def _checked_actions(self, actions: Any) -> Any:
        """Checks actions that are not an array with a row for each environment: see :meth:`_batch_of_actions`."""
        if is_composed(self.action_space) and isinstance(actions, dict | tuple):
            if self.num_envs == 1 and self.action_space.contains(actions):
                return [actions]
            if isinstance(actions, dict):
                raise ValueError(
                    f"actions of the space {self.action_space} must be a list with one action for each of the "
                    f"{self.num_envs} environments, got a dict with the keys {list(actions)}."
                )
        count = 0 if np.isscalar(actions) or getattr(actions, "ndim", 1) == 0 else len(actions)
        if count < self.num_envs:
            raise ValueError(f"actions must hold one action per environment ({self.num_envs}), got {count}.")
        if count > self.num_envs:
            warn_user(
                f"actions hold {count} actions for {self.num_envs} environments: the last ones are left out.",
                UserWarning,
            )
            return actions[: self.num_envs]
        return actions

    # --- images ---

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Returns one RGB image per environment (None where it has none)."""
        raise NotImplementedError(f"{type(self).__name__} does not implement get_images().")

    def render(self, mode: str | None = None) -> np.ndarray | None:
        """Show the environments, or return them as one image of tiles ``(H, W, 3)``.

        Other modes ("human", "ansi") call each environment's own ``render()``; a single one's result is returned.

        Args:
            mode: None for the mode the environments were made with. ``"human"`` on environments made with
                ``"rgb_array"`` shows the tiles in a window (needs opencv).
        """
        if mode == "human" and self.render_mode == "rgb_array":
            self._show(self._tiles())
            return None
        if mode is not None and mode != self.render_mode:
            warn_user(
                f"render(mode={mode!r}) is ignored: the environments were made with render_mode={self.render_mode!r}. "
                f"Pass render_mode={mode!r} when making them."
            )
            return None
        if self.render_mode is None:
            warn_user("render() does nothing: no render_mode was passed when the environments were made.")
            return None
        if self.render_mode == "rgb_array":
            return self._tiles()
        frames = self.env_method("render")
        return frames[0] if self.num_envs == 1 else None

    def _tiles(self) -> np.ndarray | None:
        images = [image for image in self.get_images() if image is not None]
        if not images:
            warn_user("render() got no image: every environment's render() returned None.")
            return None
        return tile_images(images)

    def _show(self, image: np.ndarray | None) -> None:
        if image is None:
            return
        cv2 = needed("cv2", "render('human') needs opencv", "extra")
        cv2.imshow("vecenv", image[:, :, ::-1])
        cv2.waitKey(1)

    # --- layers ---

    @property
    def unwrapped(self) -> VecEnv:
        """The VecEnv beneath all VecEnvWrappers."""
        return self

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """Returns the name of the class whose attribute would be hidden by one found further out; None if there is
        none."""
        return _qualified_name(self) if already_found and _owns(self, name) else None


class VecEnvWrapper(VecEnv):
    """A VecEnv around another one; everything that a subclass does not define reaches the wrapped one.

    This includes attributes: an unknown attribute is looked up in the wrapped VecEnvs; if two of them have it, an error
    is raised.

    Args:
        venv: the VecEnv to wrap.
        observation_space: None keeps that of ``venv``.
        action_space: None keeps that of ``venv``.
    """

    passes_on: Container[str] = ()
    """Those of ``"observations"`` and ``"rewards"`` that a class defining ``reset`` or ``step_wait`` returns unchanged
    from ``venv``. Around a ``VecNormalize``, the others are replayed as they were returned, normalised by the
    statistics of that time; unchanged ones are normalised by the newest statistics."""

    state_attributes: ClassVar[tuple[str, ...] | None] = None
    """Names of the attributes that are part of the environments' state; ``None``: all that are plain data."""

    def __init__(
        self, venv: VecEnv, observation_space: spaces.Space | None = None, action_space: spaces.Space | None = None
    ):
        if not isinstance(venv, VecEnv):
            raise TypeError(
                f"{type(self).__name__} wraps a VecEnv, got {type(venv).__name__}. "
                "Make one with make_vec_env(...) or DummyVecEnv([lambda: env])."
            )
        # VecEnv.__init__ is not called: seeds, options and reset_infos live in the innermost VecEnv only.
        self.venv = venv
        self.num_envs = venv.num_envs
        self.observation_space = venv.observation_space if observation_space is None else observation_space
        self.action_space = venv.action_space if action_space is None else action_space
        self.render_mode = venv.render_mode

    def __repr__(self) -> str:
        return f"<{type(self).__name__} around {self.venv!r}>"

    def around(self: Wrapper, venv: VecEnv) -> Wrapper:
        """Returns the same layer around another VecEnv; it shares this one's attributes."""
        layer = type(self).__new__(type(self))
        vars(layer).update(vars(self), venv=venv)
        return layer

    @property
    def metadata(self) -> dict[str, Any]:  # type: ignore[override]
        """Metadata of the wrapped VecEnv."""
        return self.venv.metadata

    @property
    def reset_infos(self) -> list[dict[str, Any]]:
        """The info dicts of the last reset, kept by the innermost VecEnv."""
        return getattr(self.venv, "reset_infos", [])  # a VecEnv may leave out super().__init__()

    @reset_infos.setter
    def reset_infos(self, infos: list[dict[str, Any]]) -> None:
        self.venv.reset_infos = infos

    @abstractmethod
    def reset(self) -> VecEnvObs: ...

    @abstractmethod
    def step_wait(self) -> VecEnvStepReturn: ...

    def get_state(self) -> dict[str, Any]:
        own = self.state_attributes
        skip = _NO_STATE if own is None else frozenset(vars(self)) - frozenset(own)
        attributes = attributes_of(self, skip)
        return {"class": type(self).__qualname__, "attributes": attributes, "wrapped": self.venv.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        check_class(self, state)
        self.venv.set_state(state["wrapped"])
        load_attributes(self, state["attributes"])

    def get_statistics(self, indices: VecEnvIndices = None) -> list[Found]:
        own = self._own_statistics
        return [{**own, **each} for each in self.venv.get_statistics(indices)]

    def set_statistics(self, found: list[Found], indices: VecEnvIndices = None) -> None:
        if found and self._own_statistics:
            put_into(self, found[0])
        self.venv.set_statistics(found, indices)

    @property
    def _own_statistics(self) -> Found:
        """Returns the statistics that this wrapper holds itself, for all environments."""
        return found_in(self, shared=True)

    def step_async(self, actions: np.ndarray) -> None:
        self.venv.step_async(actions)

    def close(self) -> None:
        self.venv.close()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        return self.venv.seed(seed)

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        self.venv.set_options(options)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self.venv.get_attr(attr_name, indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        self.venv.set_attr(attr_name, value, indices)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        return self.venv.env_method(method_name, *method_args, indices=indices, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        return self.venv.env_is_wrapped(wrapper_class, indices)

    def has_attr(self, attr_name: str) -> bool:
        return self.venv.has_attr(attr_name)

    def get_images(self) -> Sequence[np.ndarray | None]:
        return self.venv.get_images()

    def render(self, mode: str | None = None) -> np.ndarray | None:
        return self.venv.render(mode)

    @property
    def unwrapped(self) -> VecEnv:
        return self.venv.unwrapped

    # --- attributes of the wrapped VecEnvs ---

    def __getattr__(self, name: str) -> Any:
        # Only called when normal lookup fails. Without `venv` (a copy or an unpickled object being built) or for
        # dunder names (looked up by copy and pickle) there is nothing to forward to; nor is there for a property of
        # this class, which has raised AttributeError itself.
        if name == "venv" or name.startswith("__") or hasattr(type(self), name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        hidden_in = self.getattr_depth_check(name, already_found=False)
        if hidden_in is not None:
            raise AttributeError(
                f"The attribute {name!r} of {_qualified_name(self)} is ambiguous: the one found first hides that of "
                f"{hidden_in}. Read it from the layer you mean, e.g. env.venv.{name}."
            )
        return self.getattr_recursive(name)

    def getattr_recursive(self, name: str) -> Any:
        """Read an attribute from this wrapper or the first wrapped VecEnv that has it."""
        if _owns(self, name):
            return getattr(self, name)
        if isinstance(self.venv, VecEnvWrapper):
            return self.venv.getattr_recursive(name)
        return getattr(self.venv, name)

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        owned = _owns(self, name)
        if owned and already_found:
            return _qualified_name(self)
        return self.venv.getattr_depth_check(name, already_found or owned)


class VecObservationWrapper(VecEnvWrapper):
    """A wrapper that changes observations, those at the end of an episode too, by its method ``observation``."""

    passes_on: Container[str] = ("rewards",)

    @abstractmethod
    def observation(self, observation: Any) -> Any:
        """Returns the changed observation, of one environment or of a batch; does not change its argument."""

    def reset(self) -> VecEnvObs:
        return self.observation(self.venv.reset())

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        for index in dones.nonzero()[0].tolist():
            if "terminal_observation" in infos[index]:
                infos[index]["terminal_observation"] = self.observation(infos[index]["terminal_observation"])
        return self.observation(observations), rewards, dones, infos


_NO_STATE = frozenset({"venv", "num_envs", "render_mode", "metadata"})


def _owns(venv: VecEnv, name: str) -> bool:
    return name in vars(venv) or hasattr(type(venv), name)


def _qualified_name(venv: VecEnv) -> str:
    return f"{type(venv).__module__}.{type(venv).__name__}"


def _supported_render_modes(render_mode: str | None) -> list[str]:
    if render_mode is None:
        return []
    return ["human", "rgb_array"] if render_mode == "rgb_array" else [render_mode]


# --- finding wrappers -----------------------------------------------------------------------------------------------


def wrappers_of(env: Any) -> Iterator[VecEnvWrapper]:
    """The VecEnvWrappers around ``env``, the outermost first."""
    while isinstance(env, VecEnvWrapper):
        yield env
        env = getattr(env, "venv", None)  # one that was just unpickled may have none


def unwrap_vec_wrapper(env: gym.Env | VecEnv, vec_wrapper_class: type[Wrapper]) -> Wrapper | None:
    """Outermost wrapper of the class around ``env``, or None."""
    return next((layer for layer in wrappers_of(env) if isinstance(layer, vec_wrapper_class)), None)


def is_vecenv_wrapped(env: gym.Env | VecEnv, vec_wrapper_class: type[VecEnvWrapper]) -> bool:
    """Whether a wrapper of the class is around ``env``."""
    return unwrap_vec_wrapper(env, vec_wrapper_class) is not None


# --- small parts ----------------------------------------------------------------------------------------------------


class CloudpickleWrapper:
    """Carries an object, such as a lambda, to another process with cloudpickle instead of pickle.

    Args:
        var: the object; back under ``.var`` on the other side.
    """

    def __init__(self, var: Any):
        self.var = var

    def __getstate__(self) -> bytes:
        return cloudpickle.dumps(self.var)

    def __setstate__(self, state: bytes) -> None:
        self.var = cloudpickle.loads(state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.var(*args, **kwargs)


def tile_images(images_nhwc: Sequence[np.ndarray]) -> np.ndarray:
    """Lay N images ``(H, W, C)`` out in a grid that is as square as possible, row by row; free places are black."""
    images = np.asarray(images_nhwc)
    count, height, width, channels = images.shape
    rows = int(np.ceil(np.sqrt(count)))
    columns = int(np.ceil(count / rows))
    grid = np.zeros((rows * columns, height, width, channels), dtype=images.dtype)
    grid[:count] = images
    return (
        grid.reshape(rows, columns, height, width, channels)
        .swapaxes(1, 2)
        .reshape(rows * height, columns * width, channels)
    )
