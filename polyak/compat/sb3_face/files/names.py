"""The names in Stable-Baselines3's files, and their meaning in polyak.

A pickle names classes and functions by module and name. These tables are the only names that an untrusted one may use:
pairs, never prefixes. None of them is imported while a file is read.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

Name = tuple[str, str]
"""Module and name, as a pickle writes them."""


class PolicyName(NamedTuple):
    """A policy class of the peers: the name that a user gives for it, and the algorithms that it belongs to."""

    alias: str
    algorithms: tuple[str, ...]


def _each(modules: tuple[str, ...], names: str) -> list[Name]:
    return [(module, name) for module in modules for name in names.split()]


# -- numpy, containers, spaces -----------------------------------------------------------------------------------------

_NUMPY_CORE = ("numpy.core", "numpy._core")
RECONSTRUCT = frozenset((f"{core}.multiarray", "_reconstruct") for core in _NUMPY_CORE)
FROM_BUFFER = frozenset((f"{core}.numeric", "_frombuffer") for core in _NUMPY_CORE)
SCALAR = frozenset((f"{core}.multiarray", "scalar") for core in _NUMPY_CORE)
NDARRAY: Name = ("numpy", "ndarray")
DTYPE: Name = ("numpy", "dtype")
SCALAR_TYPES = {
    name: f"numpy:{name[1]}"
    for name in _each(("numpy",), "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64")
}
RANDOM = frozenset(
    [
        *_each(("numpy.random._pickle",), "__generator_ctor __bit_generator_ctor __randomstate_ctor"),
        *_each(("numpy.random.bit_generator",), "SeedSequence __pyx_unpickle_SeedSequence"),
        ("numpy.random._pcg64", "PCG64"),
        ("numpy.random._mt19937", "MT19937"),
        ("numpy.random._generator", "Generator"),
        ("numpy.random.mtrand", "RandomState"),
        ("gym.utils.seeding", "RandomNumberGenerator"),
    ]
)
"""Random generators of spaces. They are not taken over: a space is the same without."""

DEQUE: Name = ("collections", "deque")
ORDERED_DICT: Name = ("collections", "OrderedDict")

_SPACE_MODULES = ("box", "discrete", "multi_discrete", "multi_binary", "dict", "tuple")
SPACES = {
    (f"{library}.spaces.{module}", kind): kind
    for library in ("gymnasium", "gym")
    for module in _SPACE_MODULES
    if (kind := module.title().replace("_", ""))
} | {("gym.spaces.dict_space", "Dict"): "Dict", ("gym.spaces.tuple_space", "Tuple"): "Tuple"}

# -- torch -------------------------------------------------------------------------------------------------------------

DEVICE: Name = ("torch", "device")
_ACTIVATIONS = (
    "CELU ELU GELU Hardswish Hardtanh LeakyReLU Mish PReLU ReLU ReLU6 SELU SiLU Sigmoid Softplus Softsign Tanh"
)
_OPTIMIZERS = "Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop SGD"
TORCH = {name: f"torch.nn:{name[1]}" for name in _each(("torch.nn.modules.activation",), _ACTIVATIONS)} | {
    (f"torch.optim.{name.lower()}", name): f"torch.optim:{name}" for name in _OPTIMIZERS.split()
}

# -- Stable-Baselines3 -------------------------------------------------------------------------------------------------

_SB3, _CONTRIB = "stable_baselines3", "sb3_contrib"
_ACTOR_CRITIC = {
    "ActorCriticPolicy": "MlpPolicy",
    "ActorCriticCnnPolicy": "CnnPolicy",
    "MultiInputActorCriticPolicy": "MultiInputPolicy",
}


def _policies(module: str, names: dict[str, str], *algorithms: str) -> dict[Name, PolicyName]:
    return {(module, name): PolicyName(alias, algorithms) for name, alias in names.items()}


def _prefixed(prefix: str) -> dict[str, str]:
    return {prefix + name: alias for name, alias in _ACTOR_CRITIC.items()}


def _three(first: str) -> dict[str, str]:
    return {first: "MlpPolicy", "CnnPolicy": "CnnPolicy", "MultiInputPolicy": "MultiInputPolicy"}


POLICIES: dict[Name, PolicyName] = {
    **_policies(f"{_SB3}.common.policies", _ACTOR_CRITIC, "A2C", "PPO", "TRPO"),
    **_policies(f"{_SB3}.dqn.policies", _three("DQNPolicy"), "DQN"),
    **_policies(f"{_SB3}.sac.policies", _three("SACPolicy"), "SAC"),
    **_policies(f"{_SB3}.td3.policies", _three("TD3Policy"), "TD3", "DDPG"),
    **_policies(f"{_CONTRIB}.tqc.policies", _three("TQCPolicy"), "TQC"),
    **_policies(f"{_CONTRIB}.qrdqn.policies", _three("QRDQNPolicy"), "QRDQN"),
    **_policies(f"{_CONTRIB}.crossq.policies", _three("CrossQPolicy"), "CrossQ"),
    **_policies(f"{_CONTRIB}.ars.policies", {"ARSPolicy": "MlpPolicy", "ARSLinearPolicy": "LinearPolicy"}, "ARS"),
    **_policies(
        f"{_CONTRIB}.common.recurrent.policies",
        {name: alias.replace("Policy", "LstmPolicy") for name, alias in _prefixed("Recurrent").items()},
        "RecurrentPPO",
    ),
    **_policies(f"{_CONTRIB}.common.maskable.policies", _prefixed("Maskable"), "MaskablePPO"),
}

_BUFFERS = {
    (f"{_SB3}.common.buffers", "ReplayBuffer"): "polyak.experience:ReplayBuffer",
    (f"{_SB3}.common.buffers", "DictReplayBuffer"): "polyak.experience:DictReplayBuffer",
    (f"{_SB3}.common.buffers", "NStepReplayBuffer"): "polyak.experience:NStepReplayBuffer",
    (f"{_SB3}.her.her_replay_buffer", "HerReplayBuffer"): "polyak.experience:HerReplayBuffer",
}
REPLAY_BUFFERS = frozenset(_BUFFERS)
"""Names that ``replay_buffer.pkl`` may hold."""

CLASSES: dict[Name, str] = {
    **SCALAR_TYPES,
    **TORCH,
    **_BUFFERS,
    (f"{_SB3}.common.buffers", "RolloutBuffer"): "polyak.experience:RolloutBuffer",
    (f"{_SB3}.common.buffers", "DictRolloutBuffer"): "polyak.experience:DictRolloutBuffer",
    **{
        (f"{_CONTRIB}.common.maskable.buffers", name): f"polyak.compat.sb3_face.maskable.buffers:{name}"
        for name in ("MaskableRolloutBuffer", "MaskableDictRolloutBuffer")
    },
    (f"{_SB3}.common.torch_layers", "FlattenExtractor"): "polyak.nn:FlattenExtractor",
    (f"{_SB3}.common.torch_layers", "NatureCNN"): "polyak.nn:NatureCNN",
    (f"{_SB3}.common.torch_layers", "CombinedExtractor"): "polyak.nn:CombinedExtractor",
    (f"{_SB3}.common.sb2_compat.rmsprop_tf_like", "RMSpropTFLike"): "polyak.nn:RMSpropTFLike",
}
"""Classes that a file may name without making an instance, and their equivalents here."""

FLOAT_SCHEDULE: Name = (f"{_SB3}.common.utils", "FloatSchedule")
CONSTANT_SCHEDULE: Name = (f"{_SB3}.common.utils", "ConstantSchedule")
LINEAR_SCHEDULE: Name = (f"{_SB3}.common.utils", "LinearSchedule")
ZOO_SCHEDULE: Name = ("rl_zoo3.utils", "SimpleLinearSchedule")
TRAIN_FREQ: Name = (f"{_SB3}.common.type_aliases", "TrainFreq")
TRAIN_UNIT: Name = (f"{_SB3}.common.type_aliases", "TrainFrequencyUnit")
GOAL_STRATEGY: Name = (f"{_SB3}.her.goal_selection_strategy", "GoalSelectionStrategy")
NORMAL_NOISE: Name = (f"{_SB3}.common.noise", "NormalActionNoise")
OU_NOISE: Name = (f"{_SB3}.common.noise", "OrnsteinUhlenbeckActionNoise")
VECTORIZED_NOISE: Name = (f"{_SB3}.common.noise", "VectorizedActionNoise")
RUNNING_MEAN_STD: Name = (f"{_SB3}.common.running_mean_std", "RunningMeanStd")
VEC_NORMALIZE: Name = (f"{_SB3}.common.vec_env.vec_normalize", "VecNormalize")

CONTRIB_BUFFERS = frozenset(
    _each((f"{_CONTRIB}.common.recurrent.buffers",), "RecurrentRolloutBuffer RecurrentDictRolloutBuffer")
)
"""Named by files of algorithms that are refused by name further on."""

ALGORITHMS = (
    *("A2C", "ARS", "CrossQ", "DDPG", "DQN", "MaskablePPO", "PPO", "QRDQN", "RecurrentPPO", "SAC", "TD3", "TQC"),
    "TRPO",
)
"""The algorithms that polyak has, too."""
NOT_ATTRIBUTES = frozenset(
    ["device", "compile", "precision", "overlap", "stats_window_size", "use_rms_prop", "rms_prop_eps"]
)
"""Arguments of polyak's algorithms that the peer's models do not have as attributes of the same name."""
BUFFER_OPTIONS = ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict", "handle_timeout_termination")
"""Names that ``replay_buffer_kwargs`` may hold in both libraries."""

# -- networks ----------------------------------------------------------------------------------------------------------

_RENAMED = {"q_net": "quantile_net", "quantile_net": "q_net"}
"""QRDQN's names: the networks of its policy, and the layers of each."""
_NETWORK = re.compile(r"^(policy\.)?(quantile_net|q_net)(_target)?\.((quantile_net|q_net)\.)?")
T = TypeVar("T")


def renamed(tensors: Mapping[str, T]) -> dict[str, T]:
    """QRDQN's tensors by the peer's names if these are polyak's, or the other way round."""
    return {_NETWORK.sub(_exchanged, name): t for name, t in tensors.items()}


def _exchanged(found: re.Match[str]) -> str:
    return re.sub("quantile_net|q_net", lambda name: _RENAMED[name[0]], found[0])


_MEMORIES = {"lstm_actor": "actor_memory", "lstm_critic": "critic_memory", "critic": "critic_layer"}
"""RecurrentPPO's names."""
_MEMORIES |= {ours: theirs for theirs, ours in _MEMORIES.items()}
_MEMORY = re.compile(rf"^(policy\.)?({'|'.join(_MEMORIES)})(?=\.)")


def renamed_memory(tensors: Mapping[str, T]) -> dict[str, T]:
    """RecurrentPPO's tensors by the peer's names if these are polyak's, or the other way round."""
    return {_MEMORY.sub(lambda found: (found[1] or "") + _MEMORIES[found[2]], name): t for name, t in tensors.items()}


# -- functions that older files hold by value --------------------------------------------------------------------------

_CLOUDPICKLE = ("cloudpickle.cloudpickle", "cloudpickle.cloudpickle_fast")
MAKE_FUNCTION = frozenset(_each(_CLOUDPICKLE, "_make_function"))
SET_FUNCTION_STATE = frozenset(_each(_CLOUDPICKLE, "_function_setstate"))
MAKE_CELL = frozenset(_each(_CLOUDPICKLE, "_make_cell"))
BUILTIN_TYPE = frozenset(_each(_CLOUDPICKLE, "_builtin_type"))
FUNCTION_TYPES = (("FunctionType",), ("LambdaType",))
FUNCTION_PARTS = (
    MAKE_FUNCTION
    | SET_FUNCTION_STATE
    | MAKE_CELL
    | BUILTIN_TYPE
    | frozenset([*_each(_CLOUDPICKLE, "_make_empty_cell"), ("builtins", "float")])
)
"""The names by which :mod:`cloudpickle` builds a function. Only the two schedules of :mod:`.closures` are
recognised."""

# -- all names ---------------------------------------------------------------------------------------------------------

_OURS = {
    FLOAT_SCHEDULE: "polyak.schedules",
    CONSTANT_SCHEDULE: "polyak.schedules",
    LINEAR_SCHEDULE: "polyak.schedules",
    TRAIN_FREQ: "polyak.collecting.train_freq",
    TRAIN_UNIT: "polyak.collecting.train_freq",
    GOAL_STRATEGY: "polyak.experience.hindsight.relabel",
    NORMAL_NOISE: "polyak.noise",
    OU_NOISE: "polyak.noise",
    RUNNING_MEAN_STD: "polyak.envs.wrappers.running",
    VEC_NORMALIZE: "polyak.envs.wrappers.normalize",
}
CANONICAL: dict[Name, Name] = {(module, name[1]): name for name, module in _OURS.items()}
"""polyak's own classes with the same state, for pickles that a program has written under ``polyak run``."""

OBJECTS = frozenset([*_OURS, ZOO_SCHEDULE, VECTORIZED_NOISE])
READABLE = frozenset(
    [*RECONSTRUCT, *FROM_BUFFER, *SCALAR, NDARRAY, DTYPE, *RANDOM, DEQUE, ORDERED_DICT, *SPACES, DEVICE]
    + [*POLICIES, *CLASSES, *OBJECTS, *CONTRIB_BUFFERS, *FUNCTION_PARTS, *CANONICAL]
)
"""All names that a file may use without trust."""
