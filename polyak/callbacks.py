"""Callbacks: what runs while a model learns, to save, evaluate, log or stop it."""

from polyak.core.judging.callback import OfflineEvalCallback
from polyak.core.watching.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    ConvertCallback,
    EvalCallback,
    EventCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    MaybeCallback,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from polyak.core.watching.past_selves import PastSelves
from polyak.core.watching.watched import Watched

__all__ = [
    "BaseCallback",
    "CallbackList",
    "CheckpointCallback",
    "ConvertCallback",
    "EvalCallback",
    "EventCallback",
    "EveryNTimesteps",
    "LogEveryNTimesteps",
    "MaybeCallback",
    "OfflineEvalCallback",
    "PastSelves",
    "ProgressBarCallback",
    "StopTrainingOnMaxEpisodes",
    "StopTrainingOnNoModelImprovement",
    "StopTrainingOnRewardThreshold",
    "Watched",
]
