"""Modules with parts compiled by the user: their tensors keep the names of uncompiled modules.

``policy.actor = torch.compile(policy.actor)`` wraps the part in a module that holds it as ``_orig_mod``, a name that
torch adds to the keys of state dicts. Files would then fit only a model with the same compiled parts.
"""

from typing import Any

from torch import nn

_WRAPPED = "_orig_mod."


def plain_name(name: str) -> str:
    """Returns the name of a tensor without compiled wrappers."""
    return name.replace(_WRAPPED, "")


def keep_plain_names(module: nn.Module) -> None:
    """Give a module's state dict plain names, and let it load the state dict of any module, compiled or not."""
    module.register_state_dict_post_hook(_made_plain)
    module.register_load_state_dict_pre_hook(_found)


def _made_plain(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    if any(_WRAPPED in name for name in state):
        _rename(state, {name: plain_name(name) for name in state})


def _found(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    wrapped = {plain_name(name): name for name, _ in tensors if _WRAPPED in name}
    if wrapped or any(_WRAPPED in name for name in state):
        own = {name: plain_name(name.removeprefix(prefix)) for name in state if name.startswith(prefix)}
        _rename(state, {name: prefix + wrapped.get(plain, plain) for name, plain in own.items()})


def _rename(state: dict[str, Any], names: dict[str, str]) -> None:
    renamed = [(names.get(name, name), tensor) for name, tensor in state.items()]
    state.clear()
    state.update(renamed)
