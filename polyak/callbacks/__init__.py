"""Callbacks: code that runs while a model learns, to save, evaluate, log or stop it."""

from polyak.callbacks.average_weights import AverageWeights
from polyak.callbacks.callback import BaseCallback, CallbackList, ConvertCallback, EventCallback, MaybeCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.callbacks.offline_evaluation import OfflineEvalCallback
from polyak.callbacks.past_selves import PastSelves
from polyak.callbacks.periodic import EveryNTimesteps, LogEveryNTimesteps
from polyak.callbacks.progress_bar import ProgressBarCallback
from polyak.callbacks.saving import CheckpointCallback
from polyak.callbacks.stopping import (
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
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
