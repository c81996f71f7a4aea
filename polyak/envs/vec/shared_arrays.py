"""Arrays in a block of memory that several processes map, and the channel over which they communicate.

The block has no name anywhere in the file system (Linux: ``memfd_create``; other Unix: a file that is unlinked when it
is made; Windows: a mapping that lives as long as a process holds it), so nothing can be left behind, however a
process ends. Its handle travels over the channel, which works with every start method of ``multiprocessing``.
"""

from __future__ import annotations

import mmap
import os
import secrets
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Hashable, Mapping
from typing import TypeAlias

import numpy as np

Layout: TypeAlias = Mapping[Hashable, tuple[tuple[int, ...], np.dtype]]
"""Shape and dtype of each array of a block."""

_ALIGNMENT = 64  # a cache line, so that two arrays never share one
_HEADER = 9  # one byte of kind, eight of length
_EMPTY = bytes(_HEADER - 1)  # the length of no content
_CHUNK = 16384  # bytes read at once; the usual message is far smaller


def create_shared_arrays(layout: Layout, receivers: list[Channel]) -> dict[Hashable, np.ndarray]:
    """Allocate zeroed arrays and pass the memory to each receiver, which calls :func:`receive_shared_arrays`.

    Args:
        layout: shapes and dtypes; the receivers must use an equal one.
        receivers: channels to the processes that map the same memory.
    """
    size = _size(layout)
    if sys.platform == "win32":
        tag = secrets.token_hex(16)
        memory = mmap.mmap(-1, size, tagname=tag)
        for channel in receivers:
            channel.outgoing.sendall(tag.encode())
    else:
        descriptor = _anonymous_file(size)
        try:
            memory = mmap.mmap(descriptor, size)
            for channel in receivers:
                socket.send_fds(channel.outgoing, [b"\0"], [descriptor])
        finally:
            os.close(descriptor)
    return _views(memory, layout)


def receive_shared_arrays(layout: Layout, channel: Channel) -> dict[Hashable, np.ndarray]:
    """Map the arrays that the process at the other end of the channel allocates.

    Raises:
        EOFError: when the other end was closed instead.
    """
    size = _size(layout)
    if sys.platform == "win32":
        tag = channel.incoming.recv(32)
        if not tag:
            raise EOFError("the other process closed the channel")
        return _views(mmap.mmap(-1, size, tagname=tag.decode()), layout)
    message, descriptors, _, _ = socket.recv_fds(channel.incoming, 1, 1)
    if not message or not descriptors:  # it may have sent the command to close instead
        raise EOFError("the other process closed the channel")
    try:
        return _views(mmap.mmap(descriptors[0], size), layout)
    finally:
        os.close(descriptors[0])


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("polyak-vec-env")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _size(layout: Layout) -> int:
    return max(sum(_padded(_bytes(shape, dtype)) for shape, dtype in layout.values()), _ALIGNMENT)


def _views(memory: mmap.mmap, layout: Layout) -> dict[Hashable, np.ndarray]:
    arrays, offset = {}, 0
    for name, (shape, dtype) in layout.items():
        arrays[name] = np.ndarray(shape, dtype=dtype, buffer=memory, offset=offset)
        offset += _padded(_bytes(shape, dtype))
    return arrays


class Channel:
    """Messages between two processes: a kind of one byte and any number of bytes of content.

    Each direction has its own pair of sockets. On one pair for both, Linux would wake a process that waits for a
    message also when its own last message is read, which costs more than the message.

    Args:
        incoming: a connected stream socket, to read from.
        outgoing: another one, to write to.
        patience: seconds that one wait may take, in :meth:`receive` and :meth:`send`; None waits for ever.
    """

    def __init__(self, incoming: socket.socket, outgoing: socket.socket, patience: float | None = None):
        self.incoming = incoming
        self.outgoing = outgoing
        self._received = bytearray()
        for end in (incoming, outgoing):
            _limit_waits(end, patience)

    def send(self, kind: bytes, content: bytes = b"", deadline: float | None = None) -> None:
        """Send one message; wait while the other side has not read the earlier ones.

        Args:
            deadline: ``time.monotonic()`` at which to give up; None never gives up.

        Raises:
            TimeoutError: when the deadline passes.
            ConnectionError: when the other end is closed or its process has exited.
        """
        message = memoryview(
            b"".join((kind, len(content).to_bytes(8, "little"), content)) if content else kind + _EMPTY
        )
        while message:
            try:
                message = message[self.outgoing.send(message) :]
            except (TimeoutError, BlockingIOError) as error:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError("the other process does not read") from error

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for one message. After a timeout the call can be repeated: bytes received so far are kept.

        Raises:
            TimeoutError: when ``patience`` passes without news.
            EOFError: when the other end is closed or its process has exited.
        """
        received = self._received
        while len(received) < _HEADER:
            self._read(_HEADER)
        if received[1:] == _EMPTY:
            kind = bytes(received[:1])
            received.clear()
            return kind, b""
        end = _HEADER + int.from_bytes(received[1:_HEADER], "little")
        while len(received) < end:
            self._read(end)
        kind, content = bytes(received[:1]), bytes(received[_HEADER:end])
        del received[:end]
        return kind, content

    def _read(self, wanted: int) -> None:
        size = max(_CHUNK, wanted - len(self._received))
        try:
            part = self.incoming.recv(size)
        except BlockingIOError as error:
            raise TimeoutError("nothing arrived in time") from error
        except ConnectionError as error:
            raise EOFError("the other process is gone") from error
        if not part:
            raise EOFError("the other process closed the channel")
        self._received += part

    def close(self) -> None:
        """Close this end; the other side reads the messages sent before and then gets EOFError."""
        self.incoming.close()
        self.outgoing.close()


def channel_ends() -> tuple[tuple[socket.socket, socket.socket], tuple[socket.socket, socket.socket]]:
    """Connected sockets (incoming, outgoing) for one process and for the other."""
    our_incoming, their_outgoing = socket.socketpair()
    their_incoming, our_outgoing = socket.socketpair()
    return (our_incoming, our_outgoing), (their_incoming, their_outgoing)


def _limit_waits(end: socket.socket, seconds: float | None) -> None:
    if sys.platform == "win32":
        end.settimeout(seconds)
        return
    end.settimeout(None)
    if seconds is not None:
        # The kernel's own limit: Python's takes one more system call per wait. Zero would mean for ever.
        limit = struct.pack("ll", *divmod(max(round(seconds * 1e6), 1), 1_000_000))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
