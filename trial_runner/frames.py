"""Frames of the keeper's and the tuner host's protocol: a length, then JSON."""

import json
import struct

from trial_runner import protocol

_HEADER = struct.Struct(">I")


class FrameTooLarge(Exception):
    """The peer announced more than `protocol.MAX_FRAME`."""


def encode(message):
    # type: (dict) -> bytes
    """One frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Cuts a byte stream into messages."""

    def __init__(self):
        # type: () -> None
        self._buffer = bytearray()

    def feed(self, data):
        # type: (bytes) -> list
        """Adds bytes; answers the messages that are now complete."""
        self._buffer += data
        messages = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, start)
            if length > protocol.MAX_FRAME:
                raise FrameTooLarge("a frame of {} bytes was announced".format(length))
            end = start + _HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[start + _HEADER.size : end]))
            start = end
        del self._buffer[:start]
        return messages
