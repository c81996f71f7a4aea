"""What algorithms share that are made to learn from a dataset: the units in which they see it."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from polyak.collecting.train_freq import TrainFreq, TrainFrequencyUnit
from polyak.data import Dataset, ReplayBuffer, collect
from polyak.data.step import Step
from polyak.distributed.runners import Transport
from polyak.envs import VecNormalize
from polyak.hyperparameters.declaration import require
from polyak.kinds.env_algorithm import FROM_DATA
from polyak.kinds.network_algorithm import NETWORKS
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.nn.networks.encoders import default_extractor
from polyak.nn.networks.standardised import StandardisedExtractor, can_be_standardised

RewardScaling = Literal["none", "standard", "range", "returns"]
BATCH = 8192
"""Observations whose features are computed at once."""


@dataclass(eq=False, repr=False)
class OfflineAlgorithm(OffPolicyAlgorithm):
    """Algorithms that are made to learn from a :class:`~polyak.data.Dataset`, given as ``env``.

    Given an environment afterwards (``set_env``), the same model goes on learning by acting.
    """

    _: KW_ONLY
    normalize_observations: bool = True
    """Standardise what the networks read by the mean and standard deviation of the dataset's observations, which are
    kept in the model. Pictures are left as they are."""
    reward_scaling: RewardScaling | tuple[float, float] = "none"
    """What is learned from instead of rewards: ``"standard"`` subtracts their mean and divides by their standard
    deviation; ``"range"`` brings them to [0, 1]; ``"returns"`` multiplies by 1000 and divides by the range of the
    episodes' returns (IQL's); ``(scale, shift)`` multiplies and adds. All are taken from the dataset, kept in the
    model, and used for what it experiences afterwards, too."""

    _alternatives = FROM_DATA
    built_with: ClassVar[Mapping[str, str]] = {
        "normalize_observations": NETWORKS,
        "reward_scaling": "the networks have learned in units of it. Make a new model.",
    }
    # Not annotated: not a hyper-parameter.
    reward_affine = 1.0, 0.0
    """Scale and shift that ``reward_scaling`` stands for, given the dataset."""

    def _setup_model(self) -> None:
        if self.dataset is not None:
            self.reward_affine = affine(self.reward_scaling, self.dataset)
        super()._setup_model()
        if self.dataset is not None and self._standardises:
            self._measure_observations(part.observations for part in self.dataset.chunks(BATCH))

    # -- rewards -------------------------------------------------------------------------------------------------------

    def _reward_of_data(self, rewards: np.ndarray) -> np.ndarray:
        scale, shift = self.reward_affine
        return rewards * scale + shift

    def _store(self, step: Step, replay_buffer: ReplayBuffer) -> None:
        super()._store(step._replace(rewards=self._reward_of_data(step.rewards)), replay_buffer)

    # -- observations --------------------------------------------------------------------------------------------------

    @property
    def _standardises(self) -> bool:
        return self.normalize_observations and can_be_standardised(self.observation_space)

    def _advise_on_new_scale(self, normalizer: VecNormalize | None) -> None:
        fix = (
            f"{type(self).__name__} has learned to standardise the observations of its dataset by itself "
            "(normalize_observations=True), and VecNormalize would do so first. Pass env without VecNormalize, or with "
            "norm_obs=False."
        )
        require(not (self._standardises and normalizer is not None and normalizer.norm_obs), "env", normalizer, fix)
        super()._advise_on_new_scale(normalizer)

    def _policy_options(self) -> dict[str, Any]:
        options = super()._policy_options()
        if not self._standardises:
            return options
        inner = options.get("features_extractor_class") or default_extractor(self.observation_space, True)
        kwargs = {"extractor_class": inner, "extractor_kwargs": options.get("features_extractor_kwargs")}
        return {**options, "features_extractor_class": StandardisedExtractor, "features_extractor_kwargs": kwargs}

    def _measure_observations(self, parts: Iterable[Any]) -> None:
        """Let the networks know how these observations [B, ...], and those before, are distributed, in the scale in
        which they get them: normalised, if ``VecNormalize`` does that."""
        normalizer = self._vec_normalize_env
        first, *others = [m for m in self.policy.modules() if isinstance(m, StandardisedExtractor)]
        with torch.no_grad():
            for part in parts:
                seen = part if normalizer is None else normalizer.normalize_obs(part)
                observations, _ = self.policy.obs_to_tensor(seen)
                first.observe(self.policy.preprocess(observations))
        for extractor in others:
            extractor.load_state_dict(first.state_dict())

    # -- files ---------------------------------------------------------------------------------------------------------

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "reward_affine": list(self.reward_affine)}

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        super()._load_extra_state(state)
        scale, shift = state["reward_affine"]
        self.reward_affine = float(scale), float(shift)

    @classmethod
    def trial(cls) -> dict[str, Any]:
        options = super().trial()
        return {**options, "env": _sample(options["env"])}


@dataclass(eq=False, repr=False)
class DatasetAlgorithm(OfflineAlgorithm):
    """Algorithms that learn from a dataset alone, and never by acting: they have no arguments for that."""

    buffer_size: ClassVar[int] = 1  # type: ignore[misc]
    learning_starts: ClassVar[int] = 0  # type: ignore[misc]
    train_freq: ClassVar[TrainFreq] = TrainFreq(1, TrainFrequencyUnit.STEP)  # type: ignore[misc]
    gradient_steps: ClassVar[int] = 1  # type: ignore[misc]
    n_steps: ClassVar[int] = 1  # type: ignore[misc]
    dataset_share: ClassVar[float | None] = None  # type: ignore[misc]
    overlap: ClassVar[bool] = False  # type: ignore[misc]
    n_runners: ClassVar[int] = 0  # type: ignore[misc]
    n_learners: ClassVar[int] = 1  # type: ignore[misc]
    transport: ClassVar[Transport] = "ray"  # type: ignore[misc]

    @classmethod
    def trial(cls) -> dict[str, Any]:
        known = {field.name for field in fields(cls)}
        return {name: value for name, value in super().trial().items() if name in known}


def affine(scaling: RewardScaling | tuple[float, float], dataset: Dataset) -> tuple[float, float]:
    """Scale and shift of rewards that ``scaling`` stands for, given what the dataset holds."""
    if isinstance(scaling, tuple):
        return scaling
    rewards = np.asarray(dataset.rewards, np.float64)
    if scaling == "standard":
        deviation = rewards.std() or 1.0
        return float(1 / deviation), float(-rewards.mean() / deviation)
    if scaling == "range":
        span = float(np.ptp(rewards)) or 1.0
        return 1 / span, -float(rewards.min()) / span
    if scaling == "returns":
        return 1000 / (float(np.ptp(dataset.returns)) or 1000.0), 0.0
    return 1.0, 0.0


@lru_cache(maxsize=4)
def _sample(env: str) -> Dataset:
    """A few hundred random steps."""
    return collect(env, None, 300, seed=0)
