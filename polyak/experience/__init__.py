"""The record of experience, the ring that stores it, and the steps from drawn cells to a batch."""

from polyak.experience.hindsight import GoalRelabel
from polyak.experience.record import Experience
from polyak.experience.replay import Replay
from polyak.experience.ring import Ring
from polyak.experience.samplers import Prioritized, RankBased, Sampler, Uniform
from polyak.experience.schema import Column, Schema
from polyak.experience.windows import RowWindow, look, transitions

__all__ = [
    "Column",
    "Experience",
    "GoalRelabel",
    "Prioritized",
    "RankBased",
    "Replay",
    "Ring",
    "RowWindow",
    "Sampler",
    "Schema",
    "Uniform",
    "look",
    "transitions",
]
