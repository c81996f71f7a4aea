"""Base classes of policies and networks: spaces, features, devices, and conversion of observations and actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.arrays import Flags, Memory, to_device, where
from polyak.envs.masks import mask_size, masks_for_rows
from polyak.envs.nan_checks import NonFiniteError
from polyak.envs.nested_spaces import as_named
from polyak.envs.spaces import (
    as_numbers,
    check_has_entries,
    is_vectorized_observation,
    maybe_transpose,
    outside_of,
    wide_bounds,
)
from polyak.nn.codec import ActionCodec, make_codec
from polyak.nn.compiled import keep_plain_names
from polyak.nn.distributions.base import Family
from polyak.nn.errors import PolicyError
from polyak.nn.initial_weights import orthogonal
from polyak.nn.networks.encoders import (
    Extractor,
    ExtractorClass,
    Obs,
    default_extractor,
    make_extractor,
    make_preprocess,
)
from polyak.nn.networks.layers import Activation, check_activation, create_mlp
from polyak.nn.networks.recall import (
    FollowingObservations,
    Recalled,
    Recurrence,
    RecurrentExtractor,
    Sequences,
    recurrence,
)
from polyak.nn.options import keywords_of
from polyak.nn.plain import is_plain, plain

NumpyObs = np.ndarray | dict[str, np.ndarray]
State = dict[str, Tensor]
"""The recurrent state of a policy, by name: [B, ...] each."""
Noise = Mapping[str, Tensor]
"""The random numbers of a policy's actions, by name: see :meth:`Policy.draw_noise`."""
N = TypeVar("N", bound="LayeredNetwork")
M = TypeVar("M", bound=nn.Module)


class Decision(NamedTuple):
    """The result of a policy for B observations."""

    actions: Tensor
    """[B, ...] in the network's units."""
    extras: Mapping[str, Tensor] = {}
    """Further columns to store, by name: [B, ...]."""
    state: State | None = None
    """The recurrent state after the step; ``None`` for a policy without one."""


class Network(nn.Module):
    """A module that reads observations of one space.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        normalize_images: divide uint8 images by 255.
    """

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, *, normalize_images: bool = True
    ) -> None:
        super().__init__()
        keep_plain_names(self)
        check_has_entries(observation_space)
        self.observation_space = observation_space
        self.action_space = action_space
        self.normalize_images = normalize_images
        self._preprocess = make_preprocess(observation_space, normalize_images)
        self._switch: _Switch | None = None

    def preprocess(self, obs: Obs) -> Obs:
        """Converts raw observations to float32 tensors: see :func:`~polyak.nn.networks.encoders.preprocess_obs`."""
        return self._preprocess(obs)

    def extract_features(self, obs: Obs, features_extractor: nn.Module) -> Any:
        """Maps raw observations [B, ...] to features [B, F] of ``features_extractor``."""
        if isinstance(obs, Recalled | Sequences | FollowingObservations):
            return features_extractor.recall(obs, self)
        return features_extractor(self._preprocess(obs))

    @property
    def device(self) -> torch.device:
        """The device of the parameters; the CPU if there are none."""
        parameter = first_parameter(self)
        return torch.device("cpu") if parameter is None else parameter.device

    def set_training_mode(self, mode: bool) -> None:
        """Switch dropout, batch normalisation and the like to training or evaluation; targets stay in evaluation."""
        if self.training != mode:
            if self._switch is None or not self._switch.current:
                self._switch = _Switch(self)
            self._switch(mode)

    def parameters_to_vector(self) -> np.ndarray:
        """Returns all parameters as one vector."""
        return nn.utils.parameters_to_vector(self.parameters()).detach().cpu().numpy()

    def load_from_vector(self, vector: np.ndarray) -> None:
        """Set all parameters from one vector.

        Raises:
            ValueError: its length is not the number of parameters.
        """
        expected = sum(parameter.numel() for parameter in self.parameters())
        if np.shape(vector) != (expected,):
            raise ValueError(f"vector must have shape ({expected},), one entry a parameter, got {np.shape(vector)}.")
        values = torch.as_tensor(vector, dtype=torch.float32, device=self.device)
        nn.utils.vector_to_parameters(values, self.parameters())

    # --- observations -------------------------------------------------------------------------------------------------

    def is_vectorized_observation(self, observation: NumpyObs) -> bool:
        """Whether a numpy observation is a batch; images may come channels-last.

        Raises:
            ValueError: its shape fits neither one observation nor a batch.
        """
        observation = as_named(observation, self.observation_space)
        return is_vectorized_observation(_as_read(observation, self.observation_space), self.observation_space)

    @plain
    def obs_to_tensor(self, observation: NumpyObs) -> tuple[Obs, bool]:
        """Converts one observation or a batch of arrays to a batch of tensors; also returns whether it was a batch.

        Images are transposed if the space is channels-first and they are not. A batch of a Discrete space may be [B] or
        [B, 1], as a replay buffer's samples are. Nested observations may be given in the environment's form, where the
        space has their parts by name.

        Raises:
            ValueError: wrong shape, wrong keys, or an entry that is NaN, infinite or beyond float32, each named.
        """
        space = self.observation_space
        observation = as_named(observation, space)
        _check_container(observation, space)
        observation = _as_read(observation, space)
        vectorized = is_vectorized_observation(observation, space)
        if isinstance(space, spaces.Dict):
            batch = {key: self._to_tensor(observation[key], part, key) for key, part in space.spaces.items()}
            return batch, vectorized
        return self._to_tensor(observation, space), vectorized

    def _to_tensor(self, observation: Any, space: spaces.Space, key: str | None = None) -> Tensor:
        array = np.array(observation, order="C")
        if array.dtype == np.float64:  # networks compute in float32, and not every device has float64
            with np.errstate(over="ignore"):
                array = array.astype(np.float32)
        _check_finite(array, key, observation)
        _check_choices(array, space, key)
        return to_device(torch.as_tensor(array.reshape((-1, *(space.shape or ())))), self.device)


class LayeredNetwork(Network):
    """Hidden layers behind a features extractor: the base of actors and critics.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: number of features.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn = list(net_arch), activation_fn

    def layers(self, inputs: int, outputs: int, **options: Any) -> nn.Sequential:
        """Returns the hidden layers and, unless ``outputs`` is 0, an output layer: see
        :func:`~polyak.nn.create_mlp`."""
        return nn.Sequential(*create_mlp(inputs, outputs, self.net_arch, self.activation_fn, **options))


class StochasticActor(LayeredNetwork):
    """An actor that draws from a distribution of actions: see :class:`LayeredNetwork`."""

    has_target: ClassVar[bool] = False
    """Whether policies keep a lagging copy of it."""

    @staticmethod
    def default_net_arch(extractor_class: ExtractorClass) -> list[int]:
        """Hidden widths of actor and critics when the user gives none."""
        return [256, 256]

    @plain
    def get_distribution(self, obs: Obs) -> Any:
        """Returns the action distribution for observations [B, ...]."""
        raise NotImplementedError

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions [B, ...]; the likeliest if ``deterministic``."""
        actions: Tensor = self.get_distribution(obs).get_actions(deterministic)
        return actions

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        """Returns actions [B, ...] by noise as the family of the distribution draws it."""
        actions: Tensor = self.get_distribution(obs).sample_from(noise)
        return actions


class CriticEnsemble(LayeredNetwork):
    """K action-value functions of the same features.

    Args:
        *args: see :class:`LayeredNetwork`.
        n_critics: K.
        **options: see :class:`LayeredNetwork`.

    Raises:
        PolicyError: fewer than one critic.
    """

    def __init__(self, *args: Any, n_critics: int = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        if n_critics < 1:
            raise PolicyError(f"n_critics must be at least 1, got {n_critics}.")
        self.n_critics = n_critics
        for k in range(n_critics):
            self.add_module(f"qf{k}", self.make_q_network(self._n_inputs()))

    def _n_inputs(self) -> int:
        return self.features_dim

    def make_q_network(self, inputs: int) -> nn.Module:
        """Returns one of the K perceptrons, which reads [B, inputs]."""
        raise NotImplementedError

    @property
    def q_networks(self) -> list[nn.Module]:
        """The K perceptrons."""
        return [self.get_submodule(f"qf{k}") for k in range(self.n_critics)]

    def own_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters that the critics' loss trains: all."""
        return list(self.parameters())


def lagging(target: M, online: nn.Module) -> M:
    """Makes ``target`` an exact, frozen copy of ``online``, and returns it."""
    target.load_state_dict(online.state_dict())
    return target.requires_grad_(False)


class Policy(Network, ABC):
    """Networks that choose actions.

    A subclass builds its networks and defines :meth:`act`. One with a recurrent state, masks or further columns also
    defines :meth:`decide`; one that samples also defines :meth:`draw_noise`, so that its actions are a pure function
    of the inputs. It has no optimizers.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        features_extractor_class: makes features of preprocessed observations; ``None`` chooses by the space.
        features_extractor_kwargs: arguments of that class besides the space.
        normalize_images: divide uint8 images by 255.
        squash_output: the network's actions lie in [-1, 1] and are scaled to the bounds of the Box.

    Raises:
        PolicyError: ``squash_output`` without a Box of finite bounds as action space.
    """

    targets: tuple[str, ...] = ()
    """Names of the target networks: they stay in evaluation mode and need no gradient."""
    recurrence: Recurrence | None = None
    """The recipe of recurrent features extractors: see :mod:`polyak.nn.networks.recall`."""
    backend: str = "numpy"
    """The backend that runs :meth:`decide` while experience is collected, from the next rollout on: ``"eager"`` line by
    line, so that a debugger can step through it; ``"numpy"`` by its recorded operations, and eagerly where that is
    impossible; ``"compiled"`` by ``torch.compile``. The actions are equal up to rounding. See
    :mod:`polyak.nn.backends`."""
    supports_masks: bool = False
    """Whether :meth:`decide` supports action masks."""
    stores: Mapping[str, tuple[int, ...]] = {}
    """Columns of :meth:`decide` besides values and log-densities, to be stored: name -> shape of a row of float32."""
    codec: ActionCodec
    """Conversion between the network's units of actions and the environment's."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Arguments of base classes that the class decides: ``policy_kwargs`` may not hold them."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        squash_output: bool = False,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor_class = features_extractor_class or default_extractor(
            observation_space, normalize_images
        )
        self.features_extractor_kwargs = dict(features_extractor_kwargs or {})
        self.codec = make_codec(action_space, squash_output)
        if squash_output:
            check_bounded(action_space)

    @classmethod
    def keywords(cls, **defaults: Any) -> set[str]:
        """Returns names that ``policy_kwargs`` may hold, given the arguments that the algorithm filled in."""
        return keywords_of(cls) - cls.fixed

    def make_features_extractor(self) -> Extractor:
        """Returns a new features extractor.

        Raises:
            PolicyError: the extractor does not suit the observation space.
        """
        extractor = make_extractor(
            self.observation_space,
            self.features_extractor_class,
            self.features_extractor_kwargs,
            self.normalize_images,
        )
        return extractor if self.recurrence is None else self.recurrence(extractor)

    def network_arguments(self, features_extractor: nn.Module | None = None) -> dict[str, Any]:
        """Returns arguments of every network of the policy: spaces, and a features extractor, of its own unless one is
        given."""
        extractor: Any = self.make_features_extractor() if features_extractor is None else features_extractor
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "features_extractor": extractor,
            "features_dim": extractor.features_dim,
            "normalize_images": self.normalize_images,
        }

    @staticmethod
    def init_weights(module: nn.Module, gain: float = 1) -> None:
        """Orthogonal weights and zero biases for a linear layer or a convolution; other modules stay as they are."""
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            orthogonal(module, gain)

    def train(self, mode: bool = True) -> Policy:
        """Sets the mode as ``nn.Module.train`` does, but keeps target networks in evaluation mode."""
        super().train(mode)
        for name in self.targets:
            getattr(self, name).eval()
        return self

    # --- actions ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Maps observations [B, ...] to actions in the network's units.

        Those are: Discrete [B] int64, counted from 0; squashed Box [B, ...] in [-1, 1]; other Box unclipped; Dict and
        Tuple [B, W] float32, see :class:`~polyak.nn.codec.ComposedCodec`.
        """

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        """Returns the random numbers of one step of :meth:`decide`, by name, in the order in which they are drawn.

        Random numbers that are missing here are drawn by the policy from torch's global generator, as in subclasses
        that override how actions are chosen. If none is missing, :meth:`decide` is a pure function.

        Args:
            batch: B.
            generator: the random generator; torch's global one by default.

        Returns:
            ``actions`` for the distribution of the actions (see :meth:`Family.draw
            <polyak.nn.distributions.base.Family.draw>`; of gSDE its matrix, which stays until :meth:`reset_noise`);
            ``levels`` of implicit quantiles; two vectors for each noisy layer. Nothing, where nothing is random.
        """
        return {}

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        """Returns actions for observations as one graph: preprocessing, features, recurrent state, head, mask and
        sample.

        Args:
            obs: [B, ...].
            noise: a result of :meth:`draw_noise`; ``None``: the likeliest actions.
            state: a result of :meth:`initial_memory` or the state after the step before, reset where episodes began.
            masks: [B, M] bool, which choices are allowed (see :mod:`polyak.envs.masks`); ``None``: all.

        Raises:
            PolicyError: masks for a policy that does not support them.
        """
        if masks is not None:
            raise PolicyError(
                f"{type(self).__name__} does not support action masks. Use one that does, or an environment without."
            )
        if state is None or self.recurrence is None:
            return Decision(self.act(obs, noise is None))
        recalled: Any = Recalled(obs, state)
        return Decision(self.act(recalled, noise is None), state=self.next_state(recalled))

    # --- memory -------------------------------------------------------------------------------------------------------

    def extractors(self) -> dict[nn.Module, RecurrentExtractor]:
        """Returns the recurrent layers of each network if ``recurrence`` is set, the acting network first, without
        targets."""
        return {}

    def next_state(self, recalled: Recalled) -> State:
        """Returns the recurrent state after one more step, for the entries that are given."""
        memory: State = {}
        for network, extractor in self.extractors().items():
            if extractor.prefix + extractor.core.names[0] in recalled.memory:
                memory |= extractor.step(recalled, network)[1]
        return memory

    def initial_memory(self, batch: int) -> State | None:
        """Returns the recurrent state at the start of B episodes; ``None`` if the policy has none."""
        return {name: part for e in self.extractors().values() for name, part in e.initial(batch).items()} or None

    def acting_memory(self, batch: int) -> State | None:
        """Returns the part of :meth:`initial_memory` that :meth:`decide` needs and :meth:`predict` returns."""
        extractors = list(self.extractors().values())
        return extractors[0].initial(batch) if extractors else self.initial_memory(batch)

    def state_of(self, memory: State) -> tuple[np.ndarray, ...]:
        """Returns the state that :meth:`predict` returns: the arrays of :meth:`acting_memory` in order; of recurrent
        layers in the layout of ``torch.nn.LSTM``, layers first, [K, B, H] each."""
        arrays = (memory[name].numpy(force=True) for name in self.acting_memory(1) or ())
        return tuple(np.moveaxis(array, 1, 0) if array.ndim == 3 else array for array in arrays)

    def memory_of(self, state: Sequence[Any]) -> State:
        """Inverts :meth:`state_of`."""
        names, arrays = self.acting_memory(1) or {}, map(np.asarray, state)
        rows_first = (np.moveaxis(array, 0, 1) if array.ndim == 3 else array for array in arrays)
        return {name: torch.as_tensor(array, device=self.device) for name, array in zip(names, rows_first, strict=True)}

    @plain
    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        """Returns the step of :meth:`predict` between tensors: :meth:`act`, unless a subclass changes it."""
        return self.act(observation, deterministic)

    def reset_noise(self, n_envs: int = 1) -> None:
        """Draw new exploration matrices, one for each environment.

        Raises:
            PolicyError: the policy does not use state-dependent exploration.
        """
        raise PolicyError(
            f"reset_noise() needs state-dependent exploration: build {type(self).__name__} with use_sde=True."
        )

    @property
    def squash_output(self) -> bool:
        """Whether the network's actions lie in [-1, 1] and are scaled to the bounds of the Box."""
        return self.codec.squash

    def to_env(self, action: np.ndarray) -> Any:
        """Converts actions from the network's units to the environment's: see :class:`~polyak.nn.codec.ActionCodec`."""
        return self.codec.to_env(action)

    def from_env(self, action: Any) -> np.ndarray:
        """Converts actions from the environment's units to the network's: the inverse of :meth:`to_env`, but for
        clipping."""
        return self.codec.from_env(action)

    def scale_action(self, action: np.ndarray) -> np.ndarray:
        """Scales actions from [low, high] to [-1, 1].

        Raises:
            PolicyError: the action space is not a Box.
        """
        return self.codec.scale(action)

    def unscale_action(self, scaled_action: np.ndarray) -> np.ndarray:
        """Scales actions from [-1, 1] to [low, high].

        Raises:
            PolicyError: the action space is not a Box.
        """
        return self.codec.unscale(scaled_action)

    def predict(
        self,
        observation: NumpyObs,
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
        *,
        action_masks: Flags = None,
    ) -> tuple[Any, Memory]:
        """Returns the action for one observation or for a batch, in the environment's units.

        Args:
            observation: a raw observation, or a batch [B, ...].
            state: the recurrent state that the step before returned; ``None``: a new episode. A policy without one
                returns the argument.
            episode_start: [B] where an episode begins, so that the recurrent state is reset, or one bool for all.
            deterministic: the likeliest action rather than a sample.
            action_masks: the allowed choices, [B, M], or [M] for all; ``None``: all.

        Returns:
            Action, or [B, ...] actions (of a Dict or Tuple space a list of B), and the new recurrent state.

        Raises:
            PolicyError: masks for a policy that does not support them.
            ValueError: a (observation, info) tuple, a wrong shape, wrong keys, NaN or infinity in the observation or
                in the action, a choice that its space does not have, or ``state``, ``episode_start`` or
                ``action_masks`` of another shape than that of so many observations.
        """
        if self.training or any(network.training for network in self.children()):
            self.set_training_mode(False)
        obs, vectorized = self.obs_to_tensor(observation)
        rows, masks = n_rows(obs), None
        if action_masks is not None:
            masks = torch.as_tensor(self.checked_masks(action_masks, rows), device=self.device)
        if episode_start is not None and np.size(episode_start) != rows:
            check_starts(episode_start, rows)
        with torch.no_grad():
            fresh = self.acting_memory(rows)
            if fresh is not None:
                memory = fresh if state is None else self._recalled(state, fresh, episode_start)
                outcome = self.decide(obs, self._noise(rows, deterministic), memory, masks)
                actions, state = outcome.actions.numpy(force=True), self.state_of(outcome.state or fresh)
            elif masks is not None:
                outcome = self.decide(obs, self._noise(rows, deterministic), None, masks)
                actions = outcome.actions.numpy(force=True)
            else:
                actions = torch.as_tensor(self._predict(obs, deterministic)).cpu().numpy()
        actions = actions.reshape((-1, *self.codec.shape))
        if self.codec.continuous and not np.isfinite(actions).all():
            raise ValueError(
                f"the policy's action is not finite: {actions[0]}. Its weights have become NaN or infinite: lower the "
                "learning rate, clip gradients, or normalise observations and rewards (VecNormalize)."
            )
        env_actions = self.to_env(actions)
        if isinstance(env_actions, list):
            return (env_actions if vectorized else env_actions[0]), state
        env_actions = np.asarray(env_actions)
        return (env_actions if vectorized else env_actions.squeeze(axis=0)), state

    def _noise(self, rows: int, deterministic: bool) -> Noise | None:
        return None if deterministic else self.draw_noise(rows)

    def _recalled(self, state: Sequence[Any], fresh: State, episode_start: Any) -> State:
        """Returns the recurrent state of ``predict`` by name, with the initial one where an episode begins.

        Raises:
            ValueError: it is of another shape than that of so many observations.
        """
        fix = "Pass what predict() returned at the step before, or None."
        names = list(fresh)
        if not isinstance(state, Sequence | np.ndarray) or len(state) != len(names):
            found = f"{len(state)} of them" if isinstance(state, Sequence | np.ndarray) else type(state).__name__
            raise ValueError(f"state must be a tuple of {len(names)} arrays, {names}, got {found}. {fix}")
        memory = self.memory_of(state)
        for name, value in fresh.items():
            if memory[name].shape != value.shape:
                raise ValueError(
                    f"state has the wrong shape: {name} is {tuple(memory[name].shape)} for a batch of "
                    f"{len(value)} observations, and must be {tuple(value.shape)}. {fix}"
                )
            memory[name] = memory[name].to(value.dtype)
        if episode_start is None:
            return memory
        rows = len(next(iter(fresh.values())))
        return renewed(memory, fresh, np.broadcast_to(np.asarray(episode_start, dtype=bool).reshape(-1), rows).copy())

    def checked_masks(self, masks: Any, rows: int) -> np.ndarray:
        """Masks [M] or [B, M] as [B, M] bool, for B = ``rows`` observations.

        Raises:
            PolicyError: the policy does not support masks.
            ValueError: they are of another shape, have other entries than 0 and 1, or forbid everything.
        """
        size = mask_size(self.action_space)
        if size is None or not self.supports_masks:
            raise PolicyError(f"{type(self).__name__} does not support action masks. Leave action_masks out.")
        return masks_for_rows(masks, rows, size, self.action_space)


class LayeredPolicy(Policy):
    """A policy whose networks have hidden layers.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        net_arch: widths of the hidden layers; ``None`` takes those of :meth:`default_arch`.
        activation_fn: follows every hidden layer.
        **options: see :class:`Policy`.
    """

    fixed = frozenset({"squash_output"})

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        activation_fn: Activation = nn.ReLU,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **options)
        check_activation(activation_fn)
        self.net_arch: Any = self.default_arch() if net_arch is None else net_arch
        self.activation_fn = activation_fn

    def default_arch(self) -> Any:
        """Returns the widths without ``net_arch``."""
        return [256, 256]

    def new_network(
        self, kind: type[N], net_arch: Sequence[int], features_extractor: nn.Module | None = None, **options: Any
    ) -> N:
        """Returns a new network of the policy, with its own features extractor unless one is given."""
        shared = self.network_arguments(features_extractor)
        return kind(net_arch=net_arch, activation_fn=self.activation_fn, **shared, **options)


class ActorPolicy(LayeredPolicy):
    """A policy that acts by a network of that name."""

    actor: Any

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions [B, ...] in the network's units."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions [B, ...] in the network's units."""
        return shaped(self.actor(obs, deterministic), self.codec.shape)

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if not noise or masks is not None:
            return super().decide(obs, noise, state, masks)
        given: Any = obs if state is None else Recalled(obs, state)
        actions = shaped(self.actor.sample_from(given, noise["actions"]), self.codec.shape)
        return Decision(actions, state=None if state is None else self.next_state(given))

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return actor_noise(self, self.actor, batch, generator)


class MemoryPolicy(LayeredPolicy):
    """A policy whose networks may be recurrent.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        memory: ``"lstm"`` or ``"gru"``: networks are recurrent; ``None``: they are not.
        memory_size: units of each recurrent layer.
        memory_layers: number of stacked recurrent layers.
        memory_dropout: share of the outputs of a layer that is dropped before the next one in training.
        max_seq_len: steps of a stored sequence to learn from, through which gradients go back.
        burn_in: steps before them, which only compute the recurrent state (R2D2).
        **options: see :class:`LayeredPolicy`.

    Raises:
        PolicyError: an argument out of range, or one without ``memory``.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        memory: str | None = None,
        memory_size: int = 256,
        memory_layers: int = 1,
        memory_dropout: float = 0.0,
        max_seq_len: int = 32,
        burn_in: int = 8,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **options)
        self.recurrence = recurrence(memory, memory_size, memory_layers, max_seq_len, burn_in, memory_dropout)


def options_of(network: type[nn.Module]) -> set[str]:
    """Returns names of the arguments of a network that its policy does not fill in."""
    return keywords_of(network) - keywords_of(LayeredNetwork)


def chosen(distribution: Any, noise: Noise | None) -> Tensor:
    """Returns actions of a distribution: the likeliest without noise; by its own draw, if the noise has no entry for
    it."""
    if not noise:
        return distribution.get_actions(noise is None)
    return distribution.sample_from(noise["actions"])


def family_noise(family: Any, batch: int, device: torch.device, generator: torch.Generator | None) -> Noise:
    """Returns the noise with which distributions of a family are sampled; empty for a family that takes no noise."""
    if not isinstance(family, Family) or type(family).draw is Family.draw:
        return {}
    return {"actions": family.draw(batch, device, generator)}


def actor_noise(policy: Policy, actor: Any, batch: int, generator: torch.Generator | None) -> Noise:
    """Returns the noise with which distributions of an actor are sampled; empty if a subclass overrides how actions are
    chosen, or if nothing is random."""
    methods = ("forward", "get_distribution", "get_action_dist_params", "sample_from")
    if not is_plain(policy, "act", "decide", "_predict") or not is_plain(actor, *methods):
        return {}
    matrices = getattr(actor, "exploration_noise", None)
    if matrices is not None:
        return {"actions": matrices.of(batch)}
    return family_noise(getattr(actor, "action_family", None), batch, policy.device, generator)


def check_starts(episode_start: Any, rows: int) -> None:
    """Check that there is one bool for each of B = ``rows`` observations, or one for all.

    Raises:
        ValueError: there are more or fewer.
    """
    if np.ndim(episode_start) > 0 and np.size(episode_start) != rows:
        raise ValueError(
            f"episode_start has the shape {np.shape(episode_start)} for {rows} observations, and must be ({rows},): "
            "True where an episode begins."
        )


def renewed(memory: State, fresh: State, starts: np.ndarray) -> State:
    """Returns ``memory``, but ``fresh`` where an episode begins, ``starts`` [B]."""
    return {name: where(torch.from_numpy(starts).to(old.device), fresh[name], old) for name, old in memory.items()}


def n_rows(obs: Any) -> int:
    """Returns B for observations [B, ...], an array or a dict of them."""
    return len(next(iter(obs.values())) if isinstance(obs, dict) else obs)


def shaped(actions: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshapes actions of a network [B, A] -> [B, *shape]; choices [B] stay as they are."""
    return actions if len(shape) == 1 or actions.ndim == 1 else actions.reshape(-1, *shape)


def check_bounded(action_space: spaces.Space) -> None:
    """Check that an action space is a Box of finite bounds, as squashed actions need.

    Raises:
        PolicyError: the action space is another one; the message names it and the fix.
    """
    if not isinstance(action_space, spaces.Box):
        raise PolicyError(f"this policy acts in a Box, but the action space is {action_space}.")
    low, high = wide_bounds(action_space)
    with np.errstate(over="ignore", invalid="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        raise PolicyError(
            f"this policy needs finite bounds to scale actions to, but the action space is {action_space}. "
            "Give the Box finite low and high."
        )


class _Switch:
    """``module.train(mode)`` for a tree of modules, at a fraction of its cost: it is called before and after every
    update."""

    def __init__(self, root: nn.Module) -> None:
        self.follow: list[dict[str, Any]] = []
        """Attributes of modules that follow the root's mode."""
        self.stay: list[dict[str, Any]] = []
        """Attributes of modules that stay in evaluation mode."""
        self.others: list[tuple[nn.Module, bool]] = []
        """Modules that override ``train``, and whether they follow."""
        self._children: list[dict[str, nn.Module | None]] = []
        self._visit(root, True)
        self._children_then = [dict(children) for children in self._children]

    def _visit(self, module: nn.Module, follows: bool) -> None:
        own = type(module).train
        if own not in (nn.Module.train, Policy.train):
            self.others.append((module, follows))
            return
        targets = module.targets if isinstance(module, Policy) else ()
        (self.follow if follows else self.stay).append(vars(module))
        self._children.append(module._modules)
        for name, child in module._modules.items():
            if child is not None:
                self._visit(child, follows and name not in targets)

    @property
    def current(self) -> bool:
        """Whether the tree is made of the same modules."""
        return self._children == self._children_then

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()  # a copy of a network makes its own

    def __call__(self, mode: bool) -> None:
        for attributes in self.follow:
            attributes["training"] = mode
        for attributes in self.stay:
            attributes["training"] = False
        for module, follows in self.others:
            module.train(mode and follows)


def _nothing() -> None:
    return None


def first_parameter(module: nn.Module) -> nn.Parameter | None:
    """Returns ``next(module.parameters())``, at a fifth of its cost, which matters in an environment loop."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for child in module._modules.values():
        parameter = None if child is None else first_parameter(child)
        if parameter is not None:
            return parameter
    return None


# --- checks on observations -----------------------------------------------------------------------------------------


def _check_container(observation: Any, space: spaces.Space) -> None:
    if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
        raise ValueError(
            "The observation is a tuple (obs, info), as gymnasium's env.reset() returns it: this is mixing Gym API "
            "and VecEnv, whose reset() returns the observation alone. Write "
            "`obs, info = env.reset()`, or `obs = vec_env.reset()`."
        )
    if isinstance(space, spaces.Dict) != isinstance(observation, Mapping):
        expected = f"a dict with the keys {list(space.spaces)}" if isinstance(space, spaces.Dict) else "an array"
        raise ValueError(f"The observation must be {expected} for the space {space}, got {type(observation).__name__}.")
    if isinstance(space, spaces.Dict) and set(observation) != set(space.spaces):
        missing, unknown = sorted(set(space.spaces) - set(observation)), sorted(set(observation) - set(space.spaces))
        raise ValueError(f"The observation's keys do not fit the Dict space: missing {missing}, unknown {unknown}.")


def _as_read(observation: Any, space: spaces.Space, key: str | None = None) -> Any:
    """Images with their channels where the space has them, and choices [B] of a Discrete space also where buffers have
    them as [B, 1]."""
    if isinstance(space, spaces.Dict):
        return {key: _as_read(observation[key], part, key) for key, part in space.spaces.items()}
    given = observation.numpy(force=True) if isinstance(observation, Tensor) else observation
    if (array := as_numbers(given)) is None:
        where = "" if key is None else f" at key {key!r}"
        kind = f"{observation!r:.200} ({type(observation).__name__})"
        raise ValueError(f"The observation{where} must be real numbers in an array for the space {space}, got {kind}.")
    if isinstance(space, spaces.Discrete) and array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    return maybe_transpose(array, space)


def _check_choices(array: np.ndarray, space: spaces.Space, key: str | None) -> None:
    """Check that [B, ...] or [...] are elements of a discrete space, which networks read as one-hot vectors."""
    value = outside_of(array, space)
    if value is None:
        return
    rows = array.reshape(-1, *(space.shape or ()))
    row = next(i for i, own in enumerate(rows) if outside_of(own, space) is not None)
    where = "" if key is None else f" at key {key!r}"
    place = f" of environment {row}" if len(rows) > 1 else ""
    raise ValueError(
        f"The observation{place}{where} has the value {value!r}, which its space {space} does not have. Correct the "
        "space, or what the environment returns: polyak.envs.check_env(env) finds such mistakes."
    )


def _check_finite(array: np.ndarray, key: str | None, before: Any = None) -> None:
    """Check that an observation is finite, as given or as float32, where ``before`` is the observation as given."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    bad = np.argwhere(~np.isfinite(array))
    index = tuple(int(i) for i in bad[0])
    where = "" if key is None else f" at key {key!r}"
    if before is not None and np.isfinite(value := np.asarray(before)[index]):
        raise NonFiniteError(
            f"The observation{where} has {len(bad)} entries beyond the range of float32, in which networks compute; "
            f"the first is {value} at index {index} of shape {array.shape}. Scale or clip it in the environment."
        )
    raise NonFiniteError(
        f"The observation{where} has {len(bad)} entries that are not finite; the first is {array[index]} at "
        f"index {index} of shape {array.shape}. Look for the cause in the environment: VecCheckNan finds it."
    )
