"""What the reports of several benchmarks have in common."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """On what the figures were measured."""
    return {"cpus": os.cpu_count(), "processor": processor(), "system": platform.platform()}


def processor() -> str:
    """The CPU's name, as well as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions_line(versions: Mapping[str, Mapping[str, str]]) -> str:
    """The report's last line: library -> package -> version."""
    return "Versions: " + "; ".join(
        f"{library}: " + ", ".join(f"{package} {version}" for package, version in packages.items())
        for library, packages in versions.items()
    )


def kept(out: Path) -> dict[str, Any]:
    """What an earlier call has written to ``out``.json, to go on from; nothing if there is none."""
    path = out.with_suffix(".json")
    return json.loads(path.read_text()) if path.exists() else {}


def write(content: Any, lines: Iterable[str], out: Path) -> str:
    """Write ``content`` to ``out``.json and the lines of Markdown to ``out``.md; returns the Markdown."""
    text = "\n".join(lines) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(content, indent=1))
    out.with_suffix(".md").write_text(text)
    return text
