"""One training of ``polyak train --seeds`` in a process of its own: it stops, and saves, when its parent has exited.

Started by `polyak.zoo.seeds`, which holds the other end of standard input. Arguments are those of ``polyak``.
"""

from __future__ import annotations

from polyak.zoo.cli import main
from polyak.zoo.interruption import stop_with_the_parent

if __name__ == "__main__":
    stop_with_the_parent()
    main()
