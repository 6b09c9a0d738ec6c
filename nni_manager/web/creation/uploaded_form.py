"""A form with a file in it, ``multipart/form-data`` (RFC 7578), which browsers send so without JavaScript, too."""

from __future__ import annotations

import asyncio
from email import message_from_bytes
from email.message import Message
from email.policy import HTTP

from starlette.requests import Request

from nni_manager.domain.errors import InvalidInput


async def fields_of(request: Request) -> dict[str, str]:
    """The text of each field, of a file its content; a file that was not chosen is left out. Raises InvalidInput."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data") or "\n" in kind or "\r" in kind:
        raise InvalidInput("the form cannot be read: it must be multipart/form-data")
    sent = f"Content-Type: {kind}\r\n\r\n".encode() + await request.body()
    return await asyncio.to_thread(_fields, sent)  # megabytes of it take a while


def _fields(sent: bytes) -> dict[str, str]:
    message = message_from_bytes(sent, policy=HTTP)
    if not message.is_multipart():
        raise InvalidInput("the form cannot be read: its parts cannot be told apart")
    return dict(_field(part) for part in message.iter_parts() if part.get_filename() != "")


def _field(part: Message) -> tuple[str, str]:
    name = part.get_param("name", header="content-disposition")
    content = part.get_payload(decode=True)
    if not isinstance(name, str) or not isinstance(content, bytes):
        raise InvalidInput("the form cannot be read: a part of it has no name")
    try:
        return name, content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        sentence = f"{name} is not UTF-8 text: byte {error.start} cannot be read; save the file as UTF-8"
        raise InvalidInput(sentence) from None
