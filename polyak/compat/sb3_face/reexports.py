"""Names of other libraries that Stable-Baselines3's modules have because they import them.

Programs read them there, such as ``stable_baselines3.common.callbacks.tqdm``. Every module answers all of them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

_LINES = """
typing: Any TypeVar ClassVar TYPE_CHECKING SupportsFloat Union Generic Optional TextIO NamedTuple Protocol
collections.abc: Callable Iterable Sequence Mapping Generator
abc: ABC abstractmethod
collections: OrderedDict deque defaultdict
copy: deepcopy
enum: Enum
functools: partial
inspect: signature
io: TextIOBase
gymnasium: Env
gymnasium.core: ActType ObsType
gymnasium.envs.registration: EnvSpec
numpy.typing: DTypeLike
torch.distributions: Bernoulli Categorical Normal TorchDistribution=Distribution
torch.optim: Optimizer
torch.utils.tensorboard: SummaryWriter
torch.utils.tensorboard.summary: hparams
tqdm: TqdmExperimentalWarning tqdm
"""
_MODULES = """
np=numpy th=torch torch nn=torch.nn F=torch.nn.functional gym=gymnasium gymnasium spaces=gymnasium.spaces
error=gymnasium.error pd=pandas plt=matplotlib.pyplot mp=multiprocessing cloudpickle cv2 psutil base64 collections copy
csv datetime functools glob inspect io json os pathlib pickle platform random re sys tempfile time warnings zipfile
"""
_ONE_MODULE = {
    "common.callbacks.tqdm": ("tqdm.rich", "tqdm"),
    "common.monitor.glob": ("glob", "glob"),
    "common.vec_env.vec_video_recorder.logger": ("gymnasium.logger", ""),
}
"""Names that mean something else in one module."""

_VARIABLES = (
    *("SelfA2C", "SelfARS", "SelfDDPG", "SelfDQN", "SelfMaskablePPO", "SelfPPO", "SelfQRDQN", "SelfRecurrentPPO"),
    *("SelfSAC", "SelfTD3", "SelfTQC", "SelfTRPO"),
    *("SelfBaseAlgorithm", "SelfOffPolicyAlgorithm", "SelfOnPolicyAlgorithm", "SelfBaseModel"),
    *("SelfDistribution", "SelfDiagGaussianDistribution", "SelfSquashedDiagGaussianDistribution"),
    *("SelfCategoricalDistribution", "SelfMultiCategoricalDistribution", "SelfBernoulliDistribution"),
    *("SelfMaskableCategoricalDistribution", "SelfMaskableMultiCategoricalDistribution"),
    *("SelfStateDependentNoiseDistribution", "VecEnvWrapperT", "TObs", "T"),
)
_OWN: dict[str, Any] = {name: TypeVar(name) for name in _VARIABLES}
_OWN["gym_installed"] = find_spec("gym") is not None


def _homes() -> dict[str, tuple[str, str]]:
    homes = {}
    for line in _LINES.strip().splitlines():
        home, _, entries = line.partition(": ")
        for entry in entries.split():
            name, _, attribute = entry.partition("=")
            homes[name] = home, attribute or name
    for entry in _MODULES.split():
        name, _, module = entry.partition("=")
        homes[name] = module or name, ""
    return homes


_HOMES = _homes()


def find(path: str, name: str) -> Any:
    """The value of a name in one of the peer's modules; ``None`` of a library that is not installed.

    Args:
        path: the module, below the root.
        name: what is looked for there.

    Raises:
        LookupError: it is none of these names.
    """
    if name in _OWN:
        return _OWN[name]
    home, attribute = _ONE_MODULE.get(f"{path}.{name}") or _HOMES[name]
    try:
        module = import_module(home)
    except ImportError:
        return None
    return getattr(module, attribute) if attribute else module
