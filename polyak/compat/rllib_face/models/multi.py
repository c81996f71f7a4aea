"""Modules under names, as RLlib holds those of several agents. Algorithms here have one that acts, named
``"default_policy"``, and beside it those that only the learner has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.models.rl_module import (
    DESCRIPTION,
    Batch,
    RLModule,
    RLModuleSpec,
    TorchRLModule,
    read_state,
)
from polyak.compat.sb3_face.overrides import refuse
from polyak.hyperparameters.declaration import require


class MultiRLModule(dict[str, Any]):
    """Modules by name.

    Args:
        modules: name -> module.
        rl_module_specs: name -> spec of a module, which is built here.
        inference_only: build only the parts that acting needs.

    Raises:
        HyperparameterError: a name that no folder can have or that was given twice, or a value that is no module.
    """

    def __init__(
        self,
        modules: Mapping[str, RLModule] | None = None,
        *,
        rl_module_specs: Mapping[str, RLModuleSpec] | None = None,
        inference_only: bool = False,
    ) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)
        for name, spec in (rl_module_specs or {}).items():
            fix = "give an RLModuleSpec."
            require(isinstance(spec, RLModuleSpec), f"rl_module_specs[{name!r}]", spec, fix)
            self.add_module(name, replace(spec, inference_only=inference_only or spec.inference_only).build())

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"there is no module {name!r}, only {sorted(self)}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={type(v).__name__}' for k, v in self.items())})"

    def add_module(self, module_id: str, module: RLModule, *, override: bool = False) -> None:
        """Add a module.

        Args:
            module_id: the name.
            module: the module.
            override: replace another module of that name.

        Raises:
            HyperparameterError: the name is taken, or no folder can have it; or the value is no module.
        """
        require(_is_plain(module_id), "module_id", module_id, "give a text without slashes.")
        require(isinstance(module, RLModule), "module", module, "give a TorchRLModule.")
        fix = "there is one of that name. Say override=True."
        require(override or module_id not in self, "module_id", module_id, fix)
        self[module_id] = module

    def remove_module(self, module_id: str) -> None:
        """Remove a module.

        Raises:
            KeyError: there is no such module.
        """
        self[module_id]  # the error names the existing ones
        del self[module_id]

    def foreach_module(self, func: Callable[[str, Any], Any]) -> list[Any]:
        """Returns the results of a function of name and module."""
        return [func(name, module) for name, module in self.items()]

    def forward_inference(self, batch: Mapping[str, Batch], **kwargs: Any) -> dict[str, Batch]:
        """Name -> batch, each through the module of its name."""
        return {name: self[name].forward_inference(part, **kwargs) for name, part in batch.items()}

    def forward_exploration(self, batch: Mapping[str, Batch], **kwargs: Any) -> dict[str, Batch]:
        """Calls ``forward_exploration`` of each module: see :meth:`forward_inference`."""
        return {name: self[name].forward_exploration(part, **kwargs) for name, part in batch.items()}

    def forward_train(self, batch: Mapping[str, Batch], **kwargs: Any) -> dict[str, Batch]:
        """Calls ``forward_train`` of each module: see :meth:`forward_inference`."""
        return {name: self[name].forward_train(part, **kwargs) for name, part in batch.items()}

    def get_state(self, inference_only: bool = False) -> dict[str, Any]:
        """Name -> state."""
        return {name: module.get_state(inference_only=inference_only) for name, module in self.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned, or parts of it.

        Raises:
            KeyError: there is no module of that name; nothing is changed then.
            ValueError: a state does not fit its module.
        """
        modules = {name: self[name] for name in state}
        for name, module in modules.items():
            module.set_state(state[name])

    def save_to_path(self, path: Any) -> str:
        """Write each module into a folder of its name; returns the folder of these."""
        for name, module in self.items():
            module.save_to_path(Path(path) / name)
        return str(path)

    @classmethod
    def from_checkpoint(cls, path: Any) -> MultiRLModule:
        """Build the modules that :meth:`save_to_path` wrote; see :meth:`TorchRLModule.from_checkpoint`.

        Raises:
            FileNotFoundError: the folder has no modules.
            ValueError: one is damaged, or names an unknown class.
        """
        found = sorted(folder.parent for folder in Path(path).glob(f"*/{DESCRIPTION}"))
        if not found:
            raise FileNotFoundError(
                f"path={str(path)!r}: no folder in it has a {DESCRIPTION}, as save_to_path() writes."
            )
        return cls({folder.name: TorchRLModule.from_checkpoint(folder) for folder in found})

    def unwrapped(self) -> MultiRLModule:
        """Returns itself: it has no wrapper."""
        return self


def of_one_agent(spec: Any) -> Any:
    """Returns an ``RLModuleSpec``: itself, or that of the only agent."""
    return spec.of_one_agent() if isinstance(spec, MultiRLModuleSpec) else spec


def learner_only(spec: Any) -> dict[str, RLModuleSpec]:
    """Name -> spec of the modules that only the learner has."""
    return spec.learner_only() if isinstance(spec, MultiRLModuleSpec) else {}


@dataclass
class MultiRLModuleSpec:
    """The specification of several modules, by name."""

    rl_module_specs: RLModuleSpec | dict[str, RLModuleSpec] = field(default_factory=dict)
    """Name -> spec; a spec without a name is that of the only agent."""
    load_state_path: Any = None
    """A folder of :meth:`MultiRLModule.save_to_path`, whose weights the new modules get."""

    def named(self) -> dict[str, RLModuleSpec]:
        """Returns the specs by name.

        Raises:
            HyperparameterError: there are none, or a value is no spec.
        """
        given = self.rl_module_specs
        specs = {DEFAULT_MODULE_ID: given} if isinstance(given, RLModuleSpec) else given
        right = isinstance(specs, Mapping) and all(isinstance(spec, RLModuleSpec) for spec in specs.values())
        require(right and bool(specs), "rl_module_specs", given, "give {name: RLModuleSpec(...)}.")
        return dict(specs)

    def build(self, module_id: str | None = None) -> Any:
        """Builds all modules as a :class:`MultiRLModule`, or one of them.

        Raises:
            HyperparameterError: an unknown name or class.
        """
        specs = self.named()
        fix = f"there are specs of {sorted(specs)}."
        require(module_id is None or module_id in specs, "module_id", module_id, fix)
        built = {}
        for name in specs if module_id is None else [module_id]:
            built[name] = specs[name].build()
            if self.load_state_path is not None:
                built[name].set_state(read_state(Path(self.load_state_path) / name))
        return MultiRLModule(cast("dict[str, RLModule]", built)) if module_id is None else built[module_id]

    def of_one_agent(self) -> RLModuleSpec:
        """Returns the spec of the only agent.

        Raises:
            HyperparameterError: there are others that act.
        """
        refuse("rl_module_spec", type(self), MultiRLModuleSpec, not_called.OF["spec"])
        specs = self.named()
        others = [name for name in specs if name != DEFAULT_MODULE_ID and not specs[name].learner_only]
        fix = f"an algorithm here trains one agent, {DEFAULT_MODULE_ID!r}"
        fix += f": {others} would act, too. Modules that only the learner has say learner_only=True." if others else "."
        require(DEFAULT_MODULE_ID in specs and not others, "rl_module_specs", sorted(specs), fix)
        return self._loaded(DEFAULT_MODULE_ID, specs[DEFAULT_MODULE_ID])

    def learner_only(self) -> dict[str, RLModuleSpec]:
        """Name -> spec of the modules that only the learner has.

        Raises:
            HyperparameterError: a name that cannot be one of a part of the learner, or a spec that cannot be built.
        """
        found = {}
        for name, spec in self.named().items():
            if name == DEFAULT_MODULE_ID:
                continue
            fix = "give a text without slashes and dots."
            require(_is_plain(name) and "." not in name, "rl_module_specs", name, fix)
            found[name] = self._loaded(name, spec)
        return found

    def _loaded(self, name: str, spec: RLModuleSpec) -> RLModuleSpec:
        """Returns a module's spec with the weights in this spec's folder."""
        if self.load_state_path is None:
            return spec
        fix = "the spec has one of its own. Leave one of them out."
        require(spec.load_state_path is None, "load_state_path", self.load_state_path, fix)
        return replace(spec, load_state_path=Path(self.load_state_path) / name)


def _is_plain(name: Any) -> bool:
    """Whether it can be the name of a folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set("/\\") & set(name)
