# ruff: noqa: I001 - one statement for each file, which isort would split
"""Environments: vectorised execution, wrappers, normalisation, checking and test environments.

Names are imported from their files when first used, so that importing this package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as`: type checkers offer a name to others only so
    from polyak.envs.checker import check_env as check_env
    from polyak.envs.games.self_play import SelfPlayVecEnv as SelfPlayVecEnv
    from polyak.envs.make import is_wrapped as is_wrapped, make_atari_env as make_atari_env, make_env as make_env
    from polyak.envs.make import make_vec_env as make_vec_env, unwrap_wrapper as unwrap_wrapper
    from polyak.envs.native.gym_vector import GymVectorEnv as GymVectorEnv
    from polyak.envs.native.make import AtariGameVecEnv as AtariGameVecEnv, make_native_vec_env as make_native_vec_env
    from polyak.envs.testing.bit_flipping import BitFlippingEnv as BitFlippingEnv
    from polyak.envs.testing.identity import FakeImageEnv as FakeImageEnv, IdentityEnv as IdentityEnv
    from polyak.envs.testing.identity import IdentityEnvBox as IdentityEnvBox
    from polyak.envs.testing.identity import IdentityEnvMultiBinary as IdentityEnvMultiBinary
    from polyak.envs.testing.identity import IdentityEnvMultiDiscrete as IdentityEnvMultiDiscrete
    from polyak.envs.testing.invalid_actions import InvalidActionEnvDiscrete as InvalidActionEnvDiscrete
    from polyak.envs.testing.invalid_actions import InvalidActionEnvMultiBinary as InvalidActionEnvMultiBinary
    from polyak.envs.testing.invalid_actions import InvalidActionEnvMultiDiscrete as InvalidActionEnvMultiDiscrete
    from polyak.envs.testing.multi_input import SimpleMultiObsEnv as SimpleMultiObsEnv
    from polyak.envs.gym_batch import DummyVecEnv as DummyVecEnv
    from polyak.envs.vec.subproc import EnvTimeoutError as EnvTimeoutError, EnvWorkerError as EnvWorkerError
    from polyak.envs.vec.subproc import SubprocVecEnv as SubprocVecEnv
    from polyak.envs.vec.vec_env import CloudpickleWrapper as CloudpickleWrapper, VecEnv as VecEnv
    from polyak.envs.vec.vec_env import VecEnvWrapper as VecEnvWrapper, is_vecenv_wrapped as is_vecenv_wrapped
    from polyak.envs.vec.vec_env import tile_images as tile_images, unwrap_vec_wrapper as unwrap_vec_wrapper
    from polyak.envs.wrap import as_vec_env as as_vec_env
    from polyak.envs.wrappers.action_masker import ActionMasker as ActionMasker
    from polyak.envs.wrappers.actions import ActionNoiseWrapper as ActionNoiseWrapper
    from polyak.envs.wrappers.actions import ActionSmoothingWrapper as ActionSmoothingWrapper
    from polyak.envs.wrappers.atari import AtariWrapper as AtariWrapper, ClipRewardEnv as ClipRewardEnv
    from polyak.envs.wrappers.atari import EpisodicLifeEnv as EpisodicLifeEnv, FireResetEnv as FireResetEnv
    from polyak.envs.wrappers.atari import MaxAndSkipEnv as MaxAndSkipEnv, NoopResetEnv as NoopResetEnv
    from polyak.envs.wrappers.atari import StickyActionEnv as StickyActionEnv, WarpFrame as WarpFrame
    from polyak.envs.wrappers.by_name import NamedObservation as NamedObservation
    from polyak.envs.wrappers.by_name import VecNamedObservation as VecNamedObservation
    from polyak.envs.wrappers.check_nan import VecCheckNan as VecCheckNan
    from polyak.envs.wrappers.delayed_reward import DelayedRewardWrapper as DelayedRewardWrapper
    from polyak.envs.wrappers.extract_dict import VecExtractDictObs as VecExtractDictObs
    from polyak.envs.wrappers.fixed_horizon import FixedHorizon as FixedHorizon
    from polyak.envs.wrappers.frame_skip import FrameSkip as FrameSkip
    from polyak.envs.wrappers.frame_stack import StackedObservations as StackedObservations
    from polyak.envs.wrappers.frame_stack import VecFrameStack as VecFrameStack
    from polyak.envs.wrappers.goal_curriculum import VecGoalCurriculum as VecGoalCurriculum
    from polyak.envs.wrappers.history import HistoryWrapper as HistoryWrapper
    from polyak.envs.wrappers.history import HistoryWrapperObsDict as HistoryWrapperObsDict
    from polyak.envs.wrappers.learned_reward import LearnedReward as LearnedReward, VecLearnedReward as VecLearnedReward
    from polyak.envs.wrappers.learned_reward import with_reward as with_reward
    from polyak.envs.wrappers.mask_velocity import MaskVelocityWrapper as MaskVelocityWrapper
    from polyak.envs.wrappers.monitor import LoadMonitorResultsError as LoadMonitorResultsError, Monitor as Monitor
    from polyak.envs.wrappers.monitor import ResultsWriter as ResultsWriter, get_monitor_files as get_monitor_files
    from polyak.envs.wrappers.monitor import load_results as load_results
    from polyak.envs.wrappers.normalize import VecNormalize as VecNormalize
    from polyak.envs.wrappers.normalize import sync_envs_normalization as sync_envs_normalization
    from polyak.envs.wrappers.normalize import unwrap_vec_normalize as unwrap_vec_normalize
    from polyak.envs.wrappers.resize import YAMLCompatResizeObservation as YAMLCompatResizeObservation
    from polyak.envs.wrappers.running import RunningMeanStd as RunningMeanStd
    from polyak.envs.wrappers.success import TruncatedOnSuccessWrapper as TruncatedOnSuccessWrapper
    from polyak.envs.wrappers.time_feature import TimeFeatureWrapper as TimeFeatureWrapper
    from polyak.envs.wrappers.transpose import VecTransposeImage as VecTransposeImage
    from polyak.envs.wrappers.vec_monitor import VecMonitor as VecMonitor
    from polyak.envs.wrappers.video import VecVideoRecorder as VecVideoRecorder

_NAMES_BY_FILE = {
    "wrappers.action_masker": "ActionMasker",
    "wrappers.actions": "ActionNoiseWrapper ActionSmoothingWrapper",
    "wrappers.atari": (
        "AtariWrapper ClipRewardEnv EpisodicLifeEnv FireResetEnv MaxAndSkipEnv NoopResetEnv StickyActionEnv WarpFrame"
    ),
    "wrappers.by_name": "NamedObservation VecNamedObservation",
    "wrappers.check_nan": "VecCheckNan",
    "wrappers.delayed_reward": "DelayedRewardWrapper",
    "checker": "check_env",
    "gym_batch": "DummyVecEnv",
    "wrappers.extract_dict": "VecExtractDictObs",
    "wrappers.fixed_horizon": "FixedHorizon",
    "wrappers.frame_stack": "StackedObservations VecFrameStack",
    "wrappers.frame_skip": "FrameSkip",
    "wrappers.goal_curriculum": "VecGoalCurriculum",
    "wrappers.history": "HistoryWrapper HistoryWrapperObsDict",
    "games.self_play": "SelfPlayVecEnv",
    "native.gym_vector": "GymVectorEnv",
    "make": "is_wrapped make_atari_env make_env make_vec_env unwrap_wrapper",
    "wrappers.learned_reward": "LearnedReward VecLearnedReward with_reward",
    "wrappers.mask_velocity": "MaskVelocityWrapper",
    "wrappers.monitor": "LoadMonitorResultsError Monitor ResultsWriter get_monitor_files load_results",
    "native.make": "AtariGameVecEnv make_native_vec_env",
    "wrappers.normalize": "VecNormalize sync_envs_normalization unwrap_vec_normalize",
    "wrappers.resize": "YAMLCompatResizeObservation",
    "wrappers.running": "RunningMeanStd",
    "wrappers.success": "TruncatedOnSuccessWrapper",
    "vec.subproc": "EnvTimeoutError EnvWorkerError SubprocVecEnv",
    "testing.bit_flipping": "BitFlippingEnv",
    "testing.identity": "FakeImageEnv IdentityEnv IdentityEnvBox IdentityEnvMultiBinary IdentityEnvMultiDiscrete",
    "testing.invalid_actions": ("InvalidActionEnvDiscrete InvalidActionEnvMultiBinary InvalidActionEnvMultiDiscrete"),
    "testing.multi_input": "SimpleMultiObsEnv",
    "wrappers.time_feature": "TimeFeatureWrapper",
    "wrappers.transpose": "VecTransposeImage",
    "vec.vec_env": "CloudpickleWrapper VecEnv VecEnvWrapper is_vecenv_wrapped tile_images unwrap_vec_wrapper",
    "wrappers.vec_monitor": "VecMonitor",
    "wrappers.video": "VecVideoRecorder",
    "wrap": "as_vec_env",
}
_FILE_OF = {name: file for file, names in _NAMES_BY_FILE.items() for name in names.split()}

__all__ = sorted(_FILE_OF)


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_FILE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FILE_OF})
