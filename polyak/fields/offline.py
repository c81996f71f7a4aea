"""The base of offline algorithms, with observations and rewards standardised by the dataset's statistics."""

from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, ClassVar

from polyak.algorithm import GymEnv
from polyak.envs import VecEnv
from polyak.experience import Dataset
from polyak.fields.dataset import LearnsFromData
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.processes import WithLearners
from polyak.hyperparameters.changing import Fixed, Reload, WithNetworks
from polyak.hyperparameters.declaration import Becomes, Count, later
from polyak.hyperparameters.held import Held
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay
from polyak.parts.units import RewardScaling, Units


@dataclass(eq=False, repr=False)
class OfflineAlgorithm(WithLearners, LearnsFromData):
    """Base class of algorithms for offline learning from a :class:`~polyak.experience.Dataset`, given as ``env``.

    They count gradient steps. One that is also an :class:`~polyak.fields.off_policy.OffPolicyAlgorithm` continues
    online once it is given an environment (``set_env``). Others do not act, and lack the arguments for that.
    """

    env: Becomes[Dataset | GymEnv | str | None, VecEnv | None] = later()
    """The :class:`~polyak.experience.Dataset` to learn from; ``None`` for a model that only predicts. An algorithm that
    can act takes an environment, too. After construction the vectorised environment with every wrapper, or ``None``
    without one."""
    _: KW_ONLY
    batch_size: Count = 256
    """Transitions per gradient step."""
    optimize_memory_usage: Reload[bool] = False
    """Store each observation once instead of twice; samples are unchanged."""
    replay_buffer_kwargs: Reload[dict[str, Any] | None] = None
    """Further arguments of the :class:`~polyak.experience.ReplayBuffer` that transitions are drawn from, such as
    ``storage_device``."""
    normalize_observations: WithNetworks[bool] = True
    """Standardise the networks' inputs by the mean and standard deviation of the dataset's observations, which are
    stored in the model. Images are not standardised."""
    reward_scaling: Annotated[
        RewardScaling | tuple[float, float], Fixed("the networks have learned in units of it. Make a new model.")
    ] = "none"
    """Scaling of rewards: ``"standard"`` subtracts their mean and divides by their standard deviation; ``"range"`` maps
    them to [0, 1]; ``"returns"`` multiplies by 1000 and divides by the range of the episodes' returns (IQL's);
    ``(scale, shift)`` multiplies and adds. Statistics are those of the dataset; they are stored in the model and
    applied to later experience, too."""

    goes_without: ClassVar[tuple[str, ...]] = (
        *(field.name for field in fields(OffPolicyAlgorithm)),
        *ExperienceReplay.explores_by,
    )
    made_of: ClassVar[MadeOf] = {"units": Units}
    reward_affine = Held[tuple[float, float]]("units.affine")
    """Scale and shift that ``reward_scaling`` gives for the dataset."""
