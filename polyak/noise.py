"""Exploration noise for the actions of a deterministic policy.

Random numbers come from numpy's global generator, which ``set_random_seed`` (a model's ``seed``) seeds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from polyak.envs.sizes import MOST_ENVS, check_size

__all__ = ["ActionNoise", "NormalActionNoise", "OrnsteinUhlenbeckActionNoise", "VectorizedActionNoise"]


class ActionNoise(ABC):
    """A source of noise: call it for the next sample, ``reset`` it when an episode ends."""

    @abstractmethod
    def __call__(self) -> np.ndarray:
        """Returns the next sample, in the units of the policy's (rescaled) actions."""

    def reset(self) -> None:  # noqa: B027  (most kinds of noise have nothing to forget)
        """Reset the state at the end of an episode."""

    def tiled(self, n_envs: int) -> "ActionNoise | None":
        """Returns independent copies that draw all samples ``[n_envs, ...]`` at once; ``None`` if there is no such
        form."""
        return None

    def state(self) -> dict[str, np.ndarray]:
        """Returns the state that the next samples depend on, besides the random generator."""
        return {}

    def load_state(self, state: dict[str, np.ndarray]) -> None:  # noqa: B027
        """Restore what :meth:`state` returned."""


class NormalActionNoise(ActionNoise):
    """Independent Gaussian noise.

    Args:
        mean: mean per action component.
        sigma: standard deviation per action component.
        dtype: of the samples.

    Raises:
        ValueError: ``sigma`` is negative, or its shape does not fit that of ``mean``.
    """

    def __init__(self, mean: ArrayLike, sigma: ArrayLike, dtype: DTypeLike = np.float32) -> None:
        self._mu, self._sigma = _checked_moments(mean, sigma)
        self._dtype = dtype
        super().__init__()

    def __call__(self) -> np.ndarray:
        # Equal to np.random.normal(mu, sigma), whose argument checks take ten times as long.
        draw = self._mu + self._sigma * np.random.standard_normal(np.shape(self._mu))
        return np.asarray(draw).astype(self._dtype)

    def __repr__(self) -> str:
        return f"NormalActionNoise(mu={self._mu}, sigma={self._sigma})"

    def tiled(self, n_envs: int) -> "NormalActionNoise | None":
        if type(self) is not NormalActionNoise:
            return None
        return NormalActionNoise(_tile(self._mu, n_envs), _tile(self._sigma, n_envs), self._dtype)


class OrnsteinUhlenbeckActionNoise(ActionNoise):
    r"""Noise that is correlated in time and drifts back to its mean.

    The Euler-Maruyama steps of :math:`dx = \theta(\mu - x)\,dt + \sigma\,dW` (Uhlenbeck and Ornstein, 1930; used for
    exploration by Lillicrap et al., 2015, arXiv:1509.02971):
    :math:`x' = x + \theta(\mu - x)\,\Delta t + \sigma\sqrt{\Delta t}\,\varepsilon`, a first-order autoregression with
    stationary variance :math:`\sigma^2\Delta t / (1 - (1 - \theta\Delta t)^2)`.

    Args:
        mean: mean per action component.
        sigma: scale of the random increments per action component.
        theta: rate of return to the mean, per unit of time.
        dt: time between two samples.
        initial_noise: value at the start of an episode; zero by default.
        dtype: of the samples; the state is kept in double precision.

    Raises:
        ValueError: ``sigma`` or ``dt`` is negative, or a shape does not fit that of ``mean``.
    """

    def __init__(
        self,
        mean: ArrayLike,
        sigma: ArrayLike,
        theta: float = 0.15,
        dt: float = 1e-2,
        initial_noise: ArrayLike | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if dt <= 0:
            raise ValueError(f"dt must be positive, got {dt!r}: it is the time between two samples.")
        self._mu, self._sigma = _checked_moments(mean, sigma)
        self._theta, self._dt, self._dtype = theta, dt, dtype
        self.initial_noise = None if initial_noise is None else np.asarray(initial_noise, dtype=np.float64)
        if self.initial_noise is not None and self.initial_noise.shape != self._mu.shape:
            raise ValueError(f"initial_noise must have the shape of mean, {self._mu.shape}, got {initial_noise!r}.")
        self.noise_prev: np.ndarray
        self.reset()
        super().__init__()

    def __call__(self) -> np.ndarray:
        drift = self._theta * (self._mu - self.noise_prev) * self._dt
        scale = self._sigma * math.sqrt(self._dt)
        self.noise_prev = self.noise_prev + drift + scale * np.random.standard_normal(self._mu.shape)
        return self.noise_prev.astype(self._dtype)

    def reset(self) -> None:
        """Start again from ``initial_noise``."""
        self.noise_prev = self.start()

    def state(self) -> dict[str, np.ndarray]:
        return {"noise_prev": self.noise_prev}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        self.noise_prev = np.array(state["noise_prev"])

    def start(self) -> np.ndarray:
        """Returns a new array with the value at the start of an episode."""
        return np.zeros_like(self._mu) if self.initial_noise is None else self.initial_noise.copy()

    def __repr__(self) -> str:
        return f"OrnsteinUhlenbeckActionNoise(mu={self._mu}, sigma={self._sigma})"

    def tiled(self, n_envs: int) -> "OrnsteinUhlenbeckActionNoise | None":
        if type(self) is not OrnsteinUhlenbeckActionNoise:
            return None
        mean, sigma, start = (_tile(x, n_envs) for x in (self._mu, self._sigma, self.start()))
        return OrnsteinUhlenbeckActionNoise(mean, sigma, self._theta, self._dt, start, self._dtype)


class NoiseCountError(ValueError, AssertionError):
    """Too few or too many noises. Also an AssertionError, as in Stable-Baselines3."""


class VectorizedActionNoise(ActionNoise):
    """Independent noise for each of several environments.

    Normal and Ornstein-Uhlenbeck noise is drawn for all environments in one call, with the same numbers as one copy per
    environment would draw; other kinds are copied and called once per environment. Reading or setting ``noises``
    switches to one object per environment permanently, because the caller may then change them individually.

    Args:
        base_noise: the kind of noise; it is copied.
        n_envs: number of environments.

    Raises:
        TypeError: ``base_noise`` is not an :class:`ActionNoise`; a ValueError if it is None.
        ValueError: ``n_envs`` is not a positive integer, or is more than 100,000.
    """

    _joint: ActionNoise | None = None

    def __init__(self, base_noise: ActionNoise, n_envs: int) -> None:
        if isinstance(n_envs, bool) or not isinstance(n_envs, int | np.integer) or n_envs < 1:
            raise ValueError(f"n_envs must be a positive integer, got {n_envs!r}.")
        check_size("n_envs", int(n_envs), MOST_ENVS)
        self.n_envs = int(n_envs)
        self.base_noise = base_noise

    @property
    def base_noise(self) -> ActionNoise:
        """The noise that is copied for each environment; setting it creates new copies."""
        return self._base_noise

    @base_noise.setter
    def base_noise(self, base_noise: ActionNoise) -> None:
        if not isinstance(base_noise, ActionNoise):
            kind = ValueError if base_noise is None else TypeError
            raise kind(f"base_noise must be an ActionNoise such as NormalActionNoise, got {base_noise!r}.")
        self._base_noise = base_noise
        self._joint = base_noise.tiled(self.n_envs)
        self._noises = [] if self._joint is not None else self._copies()

    @property
    def noises(self) -> list[ActionNoise]:
        """The noise objects, one per environment."""
        if self._joint is not None:
            self._noises = self._copies()
            if isinstance(self._joint, OrnsteinUhlenbeckActionNoise):
                for noise, state in zip(self._noises, self._joint.noise_prev, strict=True):
                    assert isinstance(noise, OrnsteinUhlenbeckActionNoise)  # a copy of such
                    noise.noise_prev = state.copy()
            self._joint = None
        return self._noises

    @noises.setter
    def noises(self, noises: Iterable[ActionNoise]) -> None:
        noises = list(noises)
        if len(noises) != self.n_envs:
            raise NoiseCountError(
                f"noises must hold one ActionNoise per environment: {self.n_envs}, got {len(noises)}."
            )
        strangers = [i for i, noise in enumerate(noises) if not isinstance(noise, type(self.base_noise))]
        if strangers:
            raise ValueError(
                f"noises at indices {strangers} are not of base_noise's type, {type(self.base_noise).__name__}. "
                "Set base_noise first to change the kind of noise."
            )
        self._joint, self._noises = None, noises

    def __call__(self) -> np.ndarray:
        """Returns the next samples, ``[n_envs, ...]``."""
        if self._joint is not None:
            return self._joint()
        return np.stack([noise() for noise in self._noises])

    def reset(self, indices: Iterable[int] | None = None) -> None:
        """Reset the noise of the environments ``indices``, or of all of them."""
        if self._joint is None:
            for i in range(self.n_envs) if indices is None else indices:
                self._noises[i].reset()
        elif indices is None:
            self._joint.reset()
        elif isinstance(self._joint, OrnsteinUhlenbeckActionNoise):
            rows = np.asarray(list(indices), dtype=np.intp)
            self._joint.noise_prev[rows] = self._joint.start()[rows]

    def state(self) -> dict[str, np.ndarray]:
        if self._joint is not None:
            return self._joint.state()
        return {f"{i}/{key}": value for i, noise in enumerate(self._noises) for key, value in noise.state().items()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        if self._joint is not None and not any("/" in key for key in state):
            self._joint.load_state(state)
            return
        for i, noise in enumerate(self.noises):
            noise.load_state({key.split("/", 1)[1]: value for key, value in state.items() if key.startswith(f"{i}/")})

    def __repr__(self) -> str:
        return f"VecNoise(BaseNoise={self.base_noise!r}, n_envs={self.n_envs})"

    def _copies(self) -> list[ActionNoise]:
        return [deepcopy(self.base_noise) for _ in range(self.n_envs)]


def for_environments(noise: ActionNoise, n_envs: int) -> ActionNoise:
    """Returns ``noise`` for ``n_envs`` environments: vectorised if there are several."""
    if isinstance(noise, VectorizedActionNoise):
        return noise if noise.n_envs == n_envs else VectorizedActionNoise(noise.base_noise, n_envs)
    return noise if n_envs == 1 else VectorizedActionNoise(noise, n_envs)


def _checked_moments(mean: ArrayLike, sigma: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns ``mean`` and ``sigma`` as arrays of one shape."""
    mu, scale = np.asarray(mean, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    if np.any(scale < 0):
        raise ValueError(f"sigma must not be negative, got {sigma!r}: it is a standard deviation.")
    try:
        mu, scale = np.broadcast_arrays(mu, scale)
    except ValueError:
        raise ValueError(f"sigma has shape {scale.shape}, which does not fit mean's shape {mu.shape}.") from None
    return mu.copy(), scale.copy()


def _tile(array: np.ndarray, n: int) -> np.ndarray[Any, Any]:
    return np.repeat(array[None], n, axis=0)
