"""Show ``:class:`~package.Name``` of docstrings as code, without the role and the package; and of an algorithm whose
page has no prose of its own, what its file says at the top."""

import ast
import re
from pathlib import Path
from typing import Any

_ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):\s*<code>(~?)([\w.]+)</code>")
_FIRST_CLASS = re.compile(r"\A# [^\n]+\n+(?=::: (polyak\.algorithms\.[\w.]+)\.\w+\n)")
_ROOT = Path(__file__).parents[1]


def on_page_content(html: str, **_: Any) -> str:
    """Rewrite one page (called by mkdocs)."""
    return _ROLE.sub(lambda role: f"<code>{role[2].rpartition('.')[2] if role[1] else role[2]}</code>", html)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put what an algorithm is before its arguments, where a page begins with these (called by mkdocs)."""
    return _FIRST_CLASS.sub(lambda title: f"{title[0]}{introduction(title[1])}\n\n", markdown)


def introduction(module: str) -> str:
    """What a module says of itself, without its first line, which is a title, and the letters of its shapes."""
    path = _ROOT / (module.replace(".", "/") + ".py")
    paragraphs = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")
    title, *rest = paragraphs
    kept = [text for text in rest if not text.startswith("Shapes:")]
    return "\n\n".join([f"**{' '.join(title.split()).rstrip('.')}.**", *kept]).replace("``", "`")
