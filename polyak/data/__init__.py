"""Transitions, storage, samplers, relabelling, rollouts: what was experienced, until it is learned from."""

from polyak.data.base import BaseBuffer
from polyak.data.batch import (
    DictReplayBufferSamples,
    DictRolloutBufferSamples,
    ReplayBufferSamples,
    RolloutBufferSamples,
    RolloutRows,
    Transition,
    TransitionRows,
)
from polyak.data.hindsight.her import HerReplayBuffer
from polyak.data.hindsight.relabel import GoalSelectionStrategy, Hindsight, Relabel, Window
from polyak.data.replay import DictReplayBuffer, NStepReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from polyak.data.rollout import DictRolloutBuffer, RolloutBuffer
from polyak.data.sampling.samplers import Prioritized, Sampler, Uniform
from polyak.data.schema import Column, Schema
from polyak.data.step import Step
from polyak.data.storage.memory import InsufficientMemoryError

__all__ = [
    "BaseBuffer",
    "Column",
    "DictReplayBuffer",
    "DictReplayBufferSamples",
    "DictRolloutBuffer",
    "DictRolloutBufferSamples",
    "GoalSelectionStrategy",
    "HerReplayBuffer",
    "Hindsight",
    "InsufficientMemoryError",
    "NStepReplayBuffer",
    "Prioritized",
    "PrioritizedReplayBuffer",
    "Relabel",
    "ReplayBuffer",
    "ReplayBufferSamples",
    "RolloutBuffer",
    "RolloutBufferSamples",
    "RolloutRows",
    "Sampler",
    "Schema",
    "Step",
    "Transition",
    "TransitionRows",
    "Uniform",
    "Window",
]
