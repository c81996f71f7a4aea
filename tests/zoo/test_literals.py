"""Values written as text are read, never run."""

import pytest
from torch import nn, optim

from polyak.experience import HerReplayBuffer
from polyak.zoo.errors import ZooError
from polyak.zoo.literals import NAMES, import_name, parse_pairs, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e5", 1e5),
        ("-2.5", -2.5),
        ("100_000", 100_000),
        ("007", 7),
        ("True", True),
        ("None", None),
        ("'quoted'", "quoted"),
        ("[64, -64]", [64, -64]),
        ("(1, 'episode')", (1, "episode")),
        ("{'pi': [8]}", {"pi": [8]}),
        ("dict(net_arch=[8], activation_fn=nn.ReLU)", {"net_arch": [8], "activation_fn": nn.ReLU}),
        ("th.optim.RMSprop", optim.RMSprop),
        ("HerReplayBuffer", HerReplayBuffer),
        ("rgb_array", "rgb_array"),
        ("lin_3e-4", "lin_3e-4"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("auto_0.1", "auto_0.1"),
    ],
)
def test_values_are_read(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "dict(a=print())",
        "[x for x in (1, 2)]",
        "(lambda: 1)()",
        "dict(**{})",
        "nn.Linear(1, 2)",
        "[nn.Linaer]",
        "[-'a']",
    ],
)
def test_expressions_are_refused(text: str) -> None:
    with pytest.raises(ZooError, match="Cannot read the value"):
        parse_value(text)


def test_every_allowed_name_exists() -> None:
    for path in NAMES.values():
        assert import_name(path) is not None


def test_pairs() -> None:
    assert parse_pairs(["a:1", "url:http://x", "b:[1, 2]"], "--x") == {"a": 1, "url": "http://x", "b": [1, 2]}
    given = ["a=1e-3", "b=dict(c={'d': 1})", "e:dict(f=2)", "url=http://x", "g=", "word:a=b"]
    read = {"a": 0.001, "b": {"c": {"d": 1}}, "e": {"f": 2}, "url": "http://x", "g": "", "word": "a=b"}
    assert parse_pairs(given, "--x") == read
    for wrong in ("=1", ":1", "a==1", "a:=1", "a=:1", "a b=1", " "):
        with pytest.raises(ZooError, match="is not of the form key:value or key=value"):
            parse_pairs([wrong], "--x")
    with pytest.raises(ZooError, match="--env-kwargs 'novalue' is not of the form key:value"):
        parse_pairs(["novalue"], "--env-kwargs")


@pytest.mark.parametrize("path", ["nodots", "no.such.module.Name", "polyak.zoo.plots.plot.Missing"])
def test_a_wrong_import_path_is_named(path: str) -> None:
    with pytest.raises(ZooError, match=path):
        import_name(path)
