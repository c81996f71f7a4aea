"""``python -m polyak``: equivalent to the ``polyak`` command."""

from polyak.zoo.cli import main

if __name__ == "__main__":
    main()
