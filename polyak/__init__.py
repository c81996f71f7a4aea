# ruff: noqa: I001 - one statement for each file, which isort would split
"""polyak: reinforcement learning in PyTorch.

Every name is imported from its file when it is first used, so that ``import polyak`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyak.algorithms import class_names, get

__version__ = "0.2.0"

if TYPE_CHECKING:  # for type checkers, without imports at run time; a test compares the two
    from polyak import (
        callbacks as callbacks,
        custom as custom,
        envs as envs,
        evaluation as evaluation,
        experience as experience,
        logging as logging,
        noise as noise,
        schedules as schedules,
    )
    from polyak.algorithms import *  # noqa: F403
    from polyak.algorithms import load as load, register as register
    from polyak.callbacks import (
        BaseCallback as BaseCallback,
        CallbackList as CallbackList,
        CheckpointCallback as CheckpointCallback,
        EvalCallback as EvalCallback,
        EveryNTimesteps as EveryNTimesteps,
        OfflineEvalCallback as OfflineEvalCallback,
        ProgressBarCallback as ProgressBarCallback,
        StopTrainingOnMaxEpisodes as StopTrainingOnMaxEpisodes,
        StopTrainingOnNoModelImprovement as StopTrainingOnNoModelImprovement,
        StopTrainingOnRewardThreshold as StopTrainingOnRewardThreshold,
    )
    from polyak.algorithms.search.mcts import MCTS as MCTS
    from polyak.experience import Dataset as Dataset, HerReplayBuffer as HerReplayBuffer, collect as collect
    from polyak.envs import (
        DummyVecEnv as DummyVecEnv,
        Monitor as Monitor,
        SubprocVecEnv as SubprocVecEnv,
        VecFrameStack as VecFrameStack,
        VecMonitor as VecMonitor,
        VecNormalize as VecNormalize,
        check_env as check_env,
        make_atari_env as make_atari_env,
        make_vec_env as make_vec_env,
    )
    from polyak.evaluation import evaluate as evaluate, evaluate_policy as evaluate_policy
    from polyak.noise import (
        NormalActionNoise as NormalActionNoise,
        OrnsteinUhlenbeckActionNoise as OrnsteinUhlenbeckActionNoise,
    )
    from polyak.schedules import (
        ConstantSchedule as ConstantSchedule,
        CosineSchedule as CosineSchedule,
        LinearSchedule as LinearSchedule,
        PiecewiseSchedule as PiecewiseSchedule,
    )

_NAMES_BY_PLACE = {
    "algorithms": "load register",
    "callbacks": "BaseCallback CallbackList CheckpointCallback EvalCallback EveryNTimesteps OfflineEvalCallback "
    "ProgressBarCallback StopTrainingOnMaxEpisodes StopTrainingOnNoModelImprovement StopTrainingOnRewardThreshold",
    "algorithms.search.mcts": "MCTS",
    "experience": "Dataset HerReplayBuffer collect",
    "envs": "DummyVecEnv Monitor SubprocVecEnv VecFrameStack VecMonitor VecNormalize check_env make_atari_env "
    "make_vec_env",
    "evaluation": "evaluate evaluate_policy",
    "noise": "NormalActionNoise OrnsteinUhlenbeckActionNoise",
    "schedules": "ConstantSchedule CosineSchedule LinearSchedule PiecewiseSchedule",
}
_PLACES = {name: f"{__name__}.{place}" for place, names in _NAMES_BY_PLACE.items() for name in names.split()}
_MODULES = frozenset(("callbacks", "custom", "envs", "evaluation", "experience", "logging", "noise", "schedules"))
"""Public modules: attributes of the package, but not exported by ``from polyak import *``, since ``logging`` would hide
Python's."""

__all__ = sorted([*class_names(), *_PLACES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in (names := class_names()):
        return get(names[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_nearest(name)}")


def _nearest(name: str) -> str:
    from polyak.suggestions import did_you_mean

    return f".{hint}" if not name.startswith("_") and (hint := did_you_mean(name, [*__all__, *_MODULES])) else ""


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
