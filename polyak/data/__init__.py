"""Transitions, storage, samplers, relabelling, rollouts: what was experienced, until it is learned from."""

from polyak.data.base import BaseBuffer
from polyak.data.batch import (
    DictReplayBufferSamples,
    DictRolloutBufferSamples,
    ReplayBufferSamples,
    RolloutBufferSamples,
    RolloutRows,
    RolloutSamples,
    Transition,
    TransitionRows,
)
from polyak.data.datasets.collecting import collect
from polyak.data.datasets.dataset import Dataset, Transitions
from polyak.data.datasets.parts import DatasetError, Episode
from polyak.data.episodes import EpisodeBuffer
from polyak.data.hindsight.her import HerReplayBuffer
from polyak.data.hindsight.relabel import GoalSelectionStrategy, Hindsight, Relabel
from polyak.data.replay import DictReplayBuffer, NStepReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from polyak.data.rollout import DictRolloutBuffer, RolloutBuffer
from polyak.data.sampling.reduce import NStep, Reduce, Sequence
from polyak.data.sampling.window import Window
from polyak.data.step import Step
from polyak.data.trajectory import Trajectory
from polyak.experience.memory import InsufficientMemoryError
from polyak.experience.samplers import Prioritized, RankBased, Sampler, Uniform
from polyak.experience.schema import Column, Schema

__all__ = [
    "BaseBuffer",
    "Column",
    "Dataset",
    "DatasetError",
    "DictReplayBuffer",
    "DictReplayBufferSamples",
    "DictRolloutBuffer",
    "DictRolloutBufferSamples",
    "Episode",
    "EpisodeBuffer",
    "GoalSelectionStrategy",
    "HerReplayBuffer",
    "Hindsight",
    "InsufficientMemoryError",
    "NStep",
    "NStepReplayBuffer",
    "Prioritized",
    "PrioritizedReplayBuffer",
    "RankBased",
    "Reduce",
    "Relabel",
    "ReplayBuffer",
    "ReplayBufferSamples",
    "RolloutBuffer",
    "RolloutBufferSamples",
    "RolloutRows",
    "RolloutSamples",
    "Sampler",
    "Schema",
    "Sequence",
    "Step",
    "Trajectory",
    "Transition",
    "TransitionRows",
    "Transitions",
    "Uniform",
    "Window",
    "collect",
]
