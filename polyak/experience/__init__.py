"""The record of experience and its way from the environment to the learner: storage, samplers, relabelling,
datasets."""

from polyak.experience.base_buffer import BaseBuffer
from polyak.experience.batch import (
    DictReplayBufferSamples,
    DictRolloutBufferSamples,
    ReplayBufferSamples,
    RolloutBufferSamples,
    RolloutRows,
    RolloutSamples,
    Transition,
    TransitionRows,
)
from polyak.experience.datasets.collecting import collect
from polyak.experience.datasets.dataset import Dataset, Transitions
from polyak.experience.datasets.episodes import DatasetError, Episode
from polyak.experience.episode_buffer import EpisodeBuffer
from polyak.experience.hindsight.her import HerReplayBuffer
from polyak.experience.hindsight.relabel import GoalSelectionStrategy, Hindsight, Relabel
from polyak.experience.memory import InsufficientMemoryError
from polyak.experience.record import Experience
from polyak.experience.replay_buffer import DictReplayBuffer, NStepReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from polyak.experience.ring import Ring
from polyak.experience.rollout_buffer import DictRolloutBuffer, RolloutBuffer
from polyak.experience.samplers import Prioritized, RankBased, Sampler, Uniform
from polyak.experience.sampling.reduce import NStep, Reduce, Sequence
from polyak.experience.sampling.window import Window
from polyak.experience.schema import Column, Schema
from polyak.experience.step import Step
from polyak.experience.trajectory import Trajectory

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
    "Experience",
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
    "Ring",
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
