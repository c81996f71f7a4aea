"""Off-policy learning: act, store, replay."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from polyak.algorithm import GymEnv, Recipe
from polyak.collecting.train_freq import TrainFreq
from polyak.envs import VecEnv
from polyak.experience import Dataset, ReplayBuffer
from polyak.fields.dataset import LearnsFromData
from polyak.fields.processes import WithRunners
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Fraction,
    Natural,
    Only,
    Runners,
    later,
)
from polyak.loops.off_policy import OffPolicyLoop
from polyak.loops.training import Loop
from polyak.noise import ActionNoise
from polyak.parts.part import MadeOf, Through
from polyak.parts.replay import ExperienceReplay

GradientSteps = Annotated[int, Only("an integer of at least -1", lambda n: n >= -1)]


@dataclass(eq=False, repr=False)
class OffPolicyAlgorithm(WithRunners, LearnsFromData):
    """Base class of algorithms that learn from a replay buffer, a dataset, or both."""

    env: Becomes[GymEnv | Dataset | Recipe | None, VecEnv | None] = later()
    """An environment, a vector of environments, a registered name, or a :class:`~polyak.experience.Dataset` to learn
    from offline; ``None`` for a model that only predicts. After construction the vectorised environment with every
    wrapper."""
    _: KW_ONLY
    steps_per_request: Reload[Natural] = 32
    """With ``n_runners``: the steps of its environments that a runner makes per request, or a whole ``train_freq`` of
    steps if that is more. Runners make those of the next request while this process learns from those of the last, so
    that their weights are at most two requests old; ``train_freq`` and ``gradient_steps`` are kept exactly, and equal
    seeds give equal results. 0 requests one ``train_freq`` at a time, with the newest weights, and waits for it: one
    runner then gives bitwise the same results as one process."""
    buffer_size: Reload[Count] = 1_000_000
    """Capacity of the replay buffer in transitions."""
    learning_starts: Natural = 100
    """Environment steps of random actions before the first update."""
    random_warm_up: bool = True
    """Take uniform random actions before ``learning_starts``; ``False``: those of the policy, with its usual
    exploration."""
    batch_size: Count = 256
    """Transitions per gradient step."""
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]."""
    train_freq: Becomes[int | tuple[int, str], TrainFreq] = later(1)
    """Steps to collect before each update: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    gradient_steps: GradientSteps = 1
    """Gradient steps per update; -1 makes as many as transitions were collected."""
    replay_buffer_class: Reload[type[ReplayBuffer] | None] = None
    """A class such as :class:`~polyak.experience.HerReplayBuffer`; ``None``: :class:`~polyak.experience.ReplayBuffer`.
    """
    replay_buffer_kwargs: Reload[dict[str, Any] | None] = None
    """Further arguments of the replay buffer."""
    optimize_memory_usage: Reload[bool] = False
    """Store each observation once instead of twice; samples are unchanged."""
    n_steps: Reload[Count | tuple[int, int]] = 1
    """Rewards summed before bootstrapping (n-step returns); ``(least, most)`` draws a number for each transition."""
    prioritized: Reload[bool | dict[str, Any]] = False
    """Prioritised replay by temporal-difference error, with importance weights (arXiv:1511.05952). A dict sets ``kind``
    (``"proportional"`` or ``"rank"``), ``alpha`` (prioritisation exponent), ``beta`` and ``final_beta`` (exponent of
    the bias correction, at the start and at the end of training), and for ``"proportional"`` also ``eps`` (added to
    errors)."""
    dataset_share: Fraction | None = None
    """Share of each minibatch that comes from the dataset, if the model has one and also learns online: 0.5 is RLPD's
    (arXiv:2302.02948); ``None`` draws from both in proportion to their size."""
    n_replay_shards: Reload[Runners] = 0
    """Processes that hold the replay buffer, each the steps of some of the environments; 0 keeps it in this one.
    Batches come from all of them, in proportion to their priorities."""
    overlap: bool = False
    """Step the environments during gradient steps: the first step of each collection is made during the previous
    update, with the policy from before that update. Useful if environments are slow and release the interpreter lock,
    as MuJoCo's and those of ``SubprocVecEnv`` do. Equal seeds give equal results. Runners always do so, unless
    ``steps_per_request`` is 0."""

    # Without annotations, since only subclasses may declare them as hyper-parameters.
    action_noise = cast("ActionNoise | None", None)
    use_sde, use_sde_at_warmup = False, False
    sde_sample_freq = cast("int | Literal['episode']", -1)
    loop: ClassVar[Callable[..., Loop]] = OffPolicyLoop.of
    made_of: ClassVar[MadeOf] = {"replay": ExperienceReplay}
    _make_group = Through("replay", ExperienceReplay.make_group)
    save_replay_buffer = Through("replay", ExperienceReplay.write)
    load_replay_buffer = Through("replay", ExperienceReplay.read)
