"""Callbacks: code that runs while a model learns, to save, evaluate, log or stop it."""

from polyak.callbacks.average_weights import AverageWeights
from polyak.callbacks.callback import (
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
from polyak.callbacks.offline_evaluation import OfflineEvalCallback
from polyak.callbacks.past_selves import PastSelves
from polyak.callbacks.watched import Watched

__all__ = [
    "AverageWeights",
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
