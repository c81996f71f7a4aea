"""Options of recurrent policies, by sb3-contrib's names and by polyak's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from polyak.warning import warn_user

_WORDS = {"lstm_hidden_size": "memory_size", "n_lstm_layers": "memory_layers"}
_CRITIC: dict[tuple[bool, bool], Literal["own", "shared", "none"]] = {
    (False, True): "own",
    (True, False): "shared",
    (False, False): "none",
}
"""(``shared_lstm``, ``enable_critic_lstm``) -> ``critic_memory``."""
_ONLY = {"bias": True, "batch_first": False, "bidirectional": False, "proj_size": 0}
"""Arguments of ``torch.nn.LSTM`` that are at their defaults here."""
_THEIRS = {"shared_lstm", "enable_critic_lstm", "lstm_kwargs"} | _WORDS.keys()
_OURS = {"memory", "critic_memory", "max_seq_len"}


def critic_memory(
    shared_lstm: bool, enable_critic_lstm: bool, share_features_extractor: bool = True
) -> Literal["own", "shared", "none"]:
    """polyak's option for the recurrent layers of the value function.

    Raises:
        AssertionError: it cannot be both, nor read the actor's memory of other features.
    """
    assert not (shared_lstm and enable_critic_lstm), (
        "shared_lstm=True lets the value function read the actor's LSTM, but enable_critic_lstm=True gives it one of "
        "its own. Set one of them to False."
    )
    assert share_features_extractor or not shared_lstm, (
        "shared_lstm=True lets the value function read the actor's features, but share_features_extractor=False asks "
        "for others. Leave one of them out."
    )
    return _CRITIC[bool(shared_lstm), bool(enable_critic_lstm)]


def lstm_words(given: Mapping[str, Any] | None, layers: int) -> dict[str, Any]:
    """Returns ``lstm_kwargs``, after checking that all of them are supported.

    Raises:
        ValueError: one is not supported.
    """
    given = dict(given or {})
    for name, value in given.items():
        if name == "dropout":
            if value and layers == 1:  # dropout is between layers
                text = f"lstm_kwargs: dropout={value} has no effect with n_lstm_layers=1."
                warn_user(text, UserWarning)
        elif name not in _ONLY or value != _ONLY[name]:
            known = sorted(["dropout", *_ONLY])
            fix = f"Leave it out: there is only {_ONLY[name]!r}." if name in _ONLY else f"There are {known}."
            raise ValueError(f"lstm_kwargs: {name}={value!r} is not supported. {fix}")
    return given


def dropout_of(given: Mapping[str, Any], layers: int) -> float:
    """Returns polyak's ``memory_dropout``: 0 for a single layer."""
    return float(given.get("dropout", 0.0)) if layers > 1 else 0.0


def to_polyak(options: Mapping[str, Any]) -> dict[str, Any]:
    """Converts ``policy_kwargs`` of sb3-contrib to polyak's names.

    Raises:
        ValueError: they have no equal.
    """
    kept = {name: value for name, value in options.items() if name not in _THEIRS}
    layers = options.get("n_lstm_layers", 1)
    if dropout := dropout_of(lstm_words(options.get("lstm_kwargs"), layers), layers):
        kept["memory_dropout"] = dropout
    kept |= {ours: options[theirs] for theirs, ours in _WORDS.items() if theirs in options}
    if "shared_lstm" in options or "enable_critic_lstm" in options:
        kept["critic_memory"] = critic_memory(
            options.get("shared_lstm", False), options.get("enable_critic_lstm", True)
        )
    return kept


def to_contrib(options: Mapping[str, Any]) -> dict[str, Any]:
    """Inverts :func:`to_polyak`; sb3-contrib's names stay as they are.

    Raises:
        ValueError: they have no equal.
    """
    if options.get("memory", "lstm") != "lstm" or options.get("max_seq_len") is not None:
        asked = {name: options[name] for name in ("memory", "max_seq_len") if name in options}
        raise ValueError(
            f"policy_kwargs: {asked} have no equal in sb3-contrib, whose memory is an LSTM that learns from sequences "
            "as long as a minibatch. Use memory='lstm' and max_seq_len=None."
        )
    back = {ours: theirs for theirs, ours in _WORDS.items()}
    kept = {back.get(name, name): value for name, value in options.items() if name not in _OURS}
    if "memory_dropout" in kept:
        kept["lstm_kwargs"] = {"dropout": kept.pop("memory_dropout")}
    if "critic_memory" in options:
        pair = next(pair for pair, word in _CRITIC.items() if word == options["critic_memory"])
        kept |= dict(zip(("shared_lstm", "enable_critic_lstm"), pair, strict=True))
    return kept
