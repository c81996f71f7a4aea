"""Show ``:class:`~package.Name``` of docstrings as code, without the role and the package; on a page of the API what
its module has in ``__all__``."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import llms

_ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):\s*<code>(~?)([\w.]+)</code>")
_NAMES = re.compile(r"<!-- names of (polyak[\w.]*) -->")
_DESCRIBED = re.compile(r"^::: (polyak[\w.]*)", re.MULTILINE)
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef)
_ROOT = Path(__file__).parents[1]


def on_page_content(html: str, **_: Any) -> str:
    """Rewrite one page (called by mkdocs)."""
    return _ROLE.sub(lambda role: f"<code>{role[2].rpartition('.')[2] if role[1] else role[2]}</code>", html)


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """Put a module's names in place of the comment that asks for them (called by mkdocs)."""
    return _NAMES.sub(lambda module: reference(module[1], page.file.src_uri), markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Put the Markdown of each page beside it, and all of it into one file (called by mkdocs)."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in docs.rglob("*.md"):
        target = site / page.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(llms.described(page.read_text("utf-8")), "utf-8")
    (site / "llms-full.txt").write_text(llms.full(), "utf-8")


def _is_written(value: Any) -> bool:
    """Whether it is a class or function of this package that stands in a file, rather than one that a program makes."""
    if not ((inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("polyak.")):
        return False
    return value.__name__ in _defined(inspect.getfile(inspect.getmodule(value) or value))


@functools.cache
def _defined(path: str) -> set[str]:
    """The classes and functions that stand in a file."""
    body = ast.walk(ast.parse(Path(path).read_text("utf-8")))
    return {node.name for node in body if isinstance(node, _DEFINITIONS)}


@functools.cache
def _homes() -> dict[str, str]:
    """What pages describe -> the page, seen from ``docs/api``; a module stands for what is in it."""
    pages = sorted((_ROOT / "docs").rglob("*.md"))
    texts = {page.relative_to(_ROOT / "docs").as_posix(): page.read_text("utf-8") for page in pages}
    homes = {path: f"../{page}" for page, text in texts.items() for path in _DESCRIBED.findall(text)}
    modules = {name: f"../{page}" for page, text in texts.items() for name in _NAMES.findall(text)}
    for name in sorted(modules, key=lambda name: not name.startswith("polyak.experience")):
        for public in importlib.import_module(name).__all__:
            value = getattr(importlib.import_module(name), public)
            if _is_written(value) and value.__module__ not in homes:
                homes.setdefault(_path(value), modules[name])
    return homes


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def reference(name: str, page: str = "") -> str:
    """A module's docstring, and a block for each class and function in its ``__all__``; those that another page
    describes are links, other names are listed."""
    module = importlib.import_module(name)
    blocks, links, values = [], [], []
    for public in module.__all__:
        value = getattr(module, public)
        if not _is_written(value) or value.__qualname__ != public:
            same = f" (`{value.__qualname__}`)" if _is_written(value) else ""
            values.append(f"`{public}`{same}")
        elif (home := _homes().get(value.__module__) or _homes()[_path(value)]) == f"../{page}":
            options = "    options:\n      show_root_full_path: false\n      members_order: source\n"
            blocks.append(f"::: {_path(value)}\n{options}")
        else:
            links.append(f"[`{public}`]({home}#{_path(value)})")
    about = inspect.cleandoc(module.__doc__ or "").replace("``", "`")
    there = [f"On other pages: {', '.join(links)}."] if links else []
    other = [f"Other names, types and values: {', '.join(values)}."] if values else []
    return "\n\n".join([about, *there, *other, *blocks])
