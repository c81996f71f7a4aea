"""Standardised observations and scaled rewards, by the statistics of a dataset."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import torch

from polyak.envs import VecEnv, unwrap_vec_normalize
from polyak.experience import Dataset
from polyak.experience.step import Step
from polyak.hyperparameters.declaration import require
from polyak.nn.networks.encoders import default_extractor
from polyak.nn.networks.standardised import StandardisedExtractor, can_be_standardised
from polyak.parts.part import Part
from polyak.parts.replay import ExperienceReplay

RewardScaling = Literal["none", "standard", "range", "returns"]
BATCH = 8192
"""Batch size for computing features of observations."""


def in_units_of_the_data(model: Any, step: Step) -> Step:
    """Returns a step with its reward scaled like those of the dataset."""
    return step._replace(rewards=model.units.rewards(step.rewards))


class Units(Part):
    """Measures a dataset's statistics, and applies them to later experience."""

    storing: ClassVar = (in_units_of_the_data,)

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.affine = 1.0, 0.0
        """Scale and shift that ``reward_scaling`` gives for the dataset."""

    def rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Returns scaled rewards [B], of the dataset or of environments."""
        scale, shift = self.affine
        return rewards * scale + shift

    @property
    def standardises(self) -> bool:
        """Whether the networks standardise their inputs."""
        return self.model.normalize_observations and can_be_standardised(self.model.observation_space)

    # -- construction --------------------------------------------------------------------------------------------------

    def attach(self, env: Any) -> bool:
        from_file = hasattr(self.model, "action_space")  # a loaded model may predict in an environment
        if not (from_file or isinstance(env, Dataset) or isinstance(self.model.replay, ExperienceReplay)):
            self._refuse(env)
        return False

    def check_ready(self, first: bool) -> None:
        if self.model.env is not None and not isinstance(self.model.replay, ExperienceReplay):
            self._refuse(self.model.env)

    def _refuse(self, env: Any) -> NoReturn:
        raise ValueError(
            f"env={env!r:.200} cannot be used: {type(self.model).__name__} learns from a dataset alone, and not by "
            "acting. Give it a polyak.experience.Dataset, such as collect(env, policy, n) records. DAgger asks an "
            "expert while it acts; IQL and AWAC continue by acting."
        )

    def check_env(self, env: VecEnv) -> None:
        model = self.model
        normalizer = unwrap_vec_normalize(env) if model.normalisation.known is None else None
        fix = (
            f"{type(model).__name__} has learned to standardise the observations of its dataset by itself "
            "(normalize_observations=True), and VecNormalize would do so first. Pass env without VecNormalize, or with "
            "norm_obs=False."
        )
        require(not (self.standardises and normalizer is not None and normalizer.norm_obs), "env", normalizer, fix)

    def prepare(self) -> None:
        if (dataset := self.model.replay.memory.dataset) is not None:
            self.affine = affine(self.model.reward_scaling, dataset)

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        if not self.standardises:
            return options
        inner = options.get("features_extractor_class") or default_extractor(self.model.observation_space, True)
        kwargs = {"extractor_class": inner, "extractor_kwargs": options.get("features_extractor_kwargs")}
        return {**options, "features_extractor_class": StandardisedExtractor, "features_extractor_kwargs": kwargs}

    def build(self) -> None:
        if (dataset := self.model.replay.memory.dataset) is not None and self.standardises:
            self.measure(part.observations for part in dataset.chunks(BATCH))

    def measure(self, parts: Iterable[Any]) -> None:
        """Updates the networks' input statistics by observations [B, ...], after ``VecNormalize`` if it is used."""
        policy, normalizer = self.model.policy, self.model.normalisation.replay
        first, *others = [m for m in policy.modules() if isinstance(m, StandardisedExtractor)]
        with torch.no_grad():
            for part in parts:
                seen = part if normalizer is None else normalizer.normalize_obs(part)
                observations, _ = policy.obs_to_tensor(seen)
                first.observe(policy.preprocess(observations))
        for extractor in others:
            extractor.load_state_dict(first.state_dict())

    # -- files ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"reward_affine": list(self.affine)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        scale, shift = state["reward_affine"]
        self.affine = float(scale), float(shift)


def affine(scaling: RewardScaling | tuple[float, float], dataset: Dataset) -> tuple[float, float]:
    """Returns scale and shift of rewards for ``scaling``, given the dataset."""
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
