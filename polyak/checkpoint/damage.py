"""Conversion of errors from damaged files to one kind of error that names the file."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from polyak.warning import printable

Method = TypeVar("Method", bound=Callable[..., Any])

_RAW = (KeyError, AttributeError, IndexError, ArithmeticError, RecursionError, MemoryError)
"""Errors that code raises for values of unexpected kinds or sizes."""


class MisfitError(ValueError, RuntimeError):
    """The weights of a file do not fit. Also a RuntimeError, like torch's."""


class ArgumentError(ValueError, TypeError):
    """A file describes an unknown argument, or one of another type. Also a TypeError, like Python's."""


@contextlib.contextmanager
def damage_named(source: Any) -> Iterator[None]:
    """Convert errors that the contents of a file cause to a ``ValueError`` that names the file.

    A ``ValueError`` keeps its class. Errors of environments and devices are not converted.

    Args:
        source: the file, as the user named it.
    """
    try:
        yield
    except UnicodeError as error:
        raise ValueError(_reason(source, error)) from error
    except ValueError as error:
        text = str(error)
        error.args = (printable(text if str(source) in text else f"path={str(source)!r}: {text}"),)
        raise
    except TypeError as error:
        raise ArgumentError(_reason(source, error)) from error
    except _RAW as error:
        raise ValueError(_reason(source, error)) from error
    except (RuntimeError, AssertionError) as error:
        if type(error) not in (RuntimeError, AssertionError):  # plain ones come from torch and `assert`
            raise
        raise MisfitError(_reason(source, error)) from error


def names_file(method: Method) -> Method:
    """Wraps a method whose first argument is a dict or a file, so that errors name the file as in :func:`damage_named`."""

    @functools.wraps(method)
    def named(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.nullcontext() if isinstance(source, Mapping) else damage_named(source):
            return method(self, source, *args, **kwargs)

    return cast(Method, named)


def _reason(source: Any, error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return (
            f"path={str(source)!r}: what the file describes takes more memory than there is ({printable(str(error))})."
        )
    return (
        f"path={str(source)!r}: the file is damaged, or made for something else: its description cannot be understood "
        f"({type(error).__name__}: {printable(str(error))})."
    )
