"""What algorithms share that are made to learn from a dataset: the units in which they see it."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NoReturn

import numpy as np
import torch

from polyak.algorithm import GymEnv
from polyak.data import Dataset, collect
from polyak.data.step import Step
from polyak.distributed.runners import Transport
from polyak.envs import VecEnv, unwrap_vec_normalize
from polyak.envs.action_spaces import FROM_DATA
from polyak.hyperparameters.changing import Fixed, Reload, WithNetworks
from polyak.hyperparameters.declaration import Becomes, Count, Learners, later, require
from polyak.kinds.dataset import LearnsFromData
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.nn.networks.encoders import default_extractor
from polyak.nn.networks.standardised import StandardisedExtractor, can_be_standardised

RewardScaling = Literal["none", "standard", "range", "returns"]
BATCH = 8192
"""Observations whose features are computed at once."""


def in_units_of_the_data(model: Any, step: Step) -> Step:
    """A step whose reward is scaled as those of the dataset are."""
    return step._replace(rewards=model._reward_of_data(step.rewards))


@dataclass(eq=False, repr=False)
class OfflineAlgorithm(LearnsFromData):
    """Algorithms that are made to learn from a :class:`~polyak.data.Dataset`, given as ``env``.

    Time is counted in gradient steps. One that is an :class:`~polyak.kinds.off_policy.OffPolicyAlgorithm`, too,
    continues by acting once it is given an environment (``set_env``). Others act in none, and have no arguments for
    that.
    """

    env: Becomes[Dataset | GymEnv | str | None, VecEnv | None] = later()
    """The :class:`~polyak.data.Dataset` to learn from; ``None`` for a model that only predicts. An algorithm that can
    act takes an environment, too. Afterwards the vectorised environment with every wrapper, or ``None`` while there is
    none."""
    _: KW_ONLY
    n_learners: Reload[Learners] = 1
    """Processes that make each gradient step together, this one among them, on an equal share of the rows each; their
    gradients are averaged. ``compile="auto"`` does not compile these steps."""
    transport: Reload[Transport] = "ray"
    """How other processes are reached: ``"ray"`` (needs ``polyak[scale]``), or ``"local"``, which keeps all of it in
    this process, with the same results."""
    batch_size: Count = 256
    """Transitions per gradient step."""
    optimize_memory_usage: Reload[bool] = False
    """Store each observation once instead of twice; the samples are the same."""
    replay_buffer_kwargs: Reload[dict[str, Any] | None] = None
    """Further arguments of the :class:`~polyak.data.ReplayBuffer` that transitions are drawn from, such as
    ``storage_device``."""
    normalize_observations: WithNetworks[bool] = True
    """Standardise what the networks read by the mean and standard deviation of the dataset's observations, which are
    kept in the model. Images are left as they are."""
    reward_scaling: Annotated[
        RewardScaling | tuple[float, float], Fixed("the networks have learned in units of it. Make a new model.")
    ] = "none"
    """What is learned from instead of rewards: ``"standard"`` subtracts their mean and divides by their standard
    deviation; ``"range"`` brings them to [0, 1]; ``"returns"`` multiplies by 1000 and divides by the range of the
    episodes' returns (IQL's); ``(scale, shift)`` multiplies and adds. All are taken from the dataset, kept in the
    model, and used for what it experiences afterwards, too."""

    _alternatives = FROM_DATA
    storing: ClassVar[tuple[Callable[[Any, Step], Step], ...]] = (in_units_of_the_data,)
    goes_without: ClassVar[tuple[str, ...]] = (
        *(field.name for field in fields(OffPolicyAlgorithm)),
        *LearnsFromData.explores_by,
    )
    # Not annotated: not a hyper-parameter.
    reward_affine = 1.0, 0.0
    """Scale and shift that ``reward_scaling`` stands for, given the dataset."""

    @property
    def _never_acts(self) -> bool:
        """Whether a dataset is all that it can learn from."""
        return not isinstance(self, OffPolicyAlgorithm)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        self._sampler_options()

    def _attach_env(self, env: Any) -> None:
        if self._never_acts and not isinstance(env, Dataset):
            self._refuse(env)
        super()._attach_env(env)

    def _check_ready(self) -> None:
        if self._never_acts and self.env is not None:
            self._refuse(self.env)
        super()._check_ready()

    def _refuse(self, env: Any) -> NoReturn:
        raise ValueError(
            f"env={env!r:.200} cannot be used: {type(self).__name__} learns from a dataset alone, and not by acting. "
            "Give it a polyak.data.Dataset, such as collect(env, policy, n) records. DAgger asks an expert while it "
            "acts; IQL and AWAC continue by acting."
        )

    def _setup_model(self) -> None:
        if self.dataset is not None:
            self.reward_affine = affine(self.reward_scaling, self.dataset)
        super()._setup_model()
        if self.dataset is not None:
            if self.data_buffer is None:
                self._replay_dataset()
            if self._standardises:
                self._measure_observations(part.observations for part in self.dataset.chunks(BATCH))

    # -- rewards -------------------------------------------------------------------------------------------------------

    def _reward_of_data(self, rewards: np.ndarray) -> np.ndarray:
        scale, shift = self.reward_affine
        return rewards * scale + shift

    # -- observations --------------------------------------------------------------------------------------------------

    @property
    def _standardises(self) -> bool:
        return self.normalize_observations and can_be_standardised(self.observation_space)

    def _with_statistics(self, env: VecEnv) -> VecEnv:
        normalizer = unwrap_vec_normalize(env) if self.normalisation.known is None else None
        fix = (
            f"{type(self).__name__} has learned to standardise the observations of its dataset by itself "
            "(normalize_observations=True), and VecNormalize would do so first. Pass env without VecNormalize, or with "
            "norm_obs=False."
        )
        require(not (self._standardises and normalizer is not None and normalizer.norm_obs), "env", normalizer, fix)
        return super()._with_statistics(env)

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
        return {**options, "batch_size": 16, "env": _sample(options["env"])}


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
