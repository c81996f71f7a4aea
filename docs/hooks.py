"""Show ``:class:`~package.Name``` of docstrings as code, without the role and the package."""

import re
from typing import Any

_ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):\s*<code>(~?)([\w.]+)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Rewrite one page (called by mkdocs)."""
    return _ROLE.sub(lambda role: f"<code>{role[2].rpartition('.')[2] if role[1] else role[2]}</code>", html)
