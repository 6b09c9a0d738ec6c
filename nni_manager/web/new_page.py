"""``/new``: creates an experiment from a pasted or uploaded file. Each error of `config check` is shown at its line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from email.policy import HTTP
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.config import admission
from nni_manager.config.settings import own_environment
from nni_manager.domain.errors import ConfigInvalid, Conflict, InvalidInput, NniManagerError, NotFound, Problem
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.web.context import PagesContext
from nni_manager.web.rendering import context_of, is_on_endpoint, reads_only, redirect, render


async def _form(request: Request) -> Response:
    _require_offered(request)
    return _show(request, Verdict(text=""), is_checked=False)


async def _sent(request: Request) -> Response:
    """Check the file, or create the experiment and redirect to its page; errors are shown with the text."""
    _require_offered(request)
    fields = await fields_of(request)
    found = await judge(context_of(request), fields.get("file") or fields.get("config", ""))
    if fields.get("action") != "start" or found.submission is None:
        return _show(request, found, is_checked=True)
    try:
        id_ = await context_of(request).commands.create(found.submission)
    except NniManagerError as error:
        return _show(request, refused(found, error), is_checked=True)
    return redirect(request, f"/experiments/{id_}")


def _show(request: Request, found: Verdict, *, is_checked: bool) -> Response:
    status = HTTPStatus.BAD_REQUEST if found.problems else HTTPStatus.OK
    return render(request, "new.html", status, verdict=found, is_checked=is_checked)


def _require_offered(request: Request) -> None:
    if context_of(request).read_experiment is None or is_on_endpoint(request):
        raise NotFound("this address cannot create experiments; open the page of `nni-manager serve`")
    if reads_only(request):
        raise Conflict("this session is read-only; log in with the daemon's own token to create an experiment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the file with its errors and warnings."""

    text: str
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    text: str
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    #: None: the file has errors.
    submission: Submission | None = None

    @property
    def lines(self) -> Iterator[Line]:
        """The lines of the file, without a blank last line."""
        for number, text in enumerate(self.text.rstrip("\n").split("\n"), start=1):
            yield Line(text=text, problems=_of(self.problems, number), warnings=_of(self.warnings, number))

    @property
    def elsewhere(self) -> list[Problem]:
        """Errors and warnings without a line, or about another file."""
        return [one for one in (*self.problems, *self.warnings) if not one.line or one.file]


def _of(problems: Sequence[Problem], number: int) -> tuple[Problem, ...]:
    return tuple(one for one in problems if one.line == number and not one.file)


async def judge(context: PagesContext, text: str) -> Verdict:
    """Read the file and run the checks of `create` that do not call a platform."""
    assert context.read_experiment is not None, "the page is offered only then"
    try:
        submission = await context.read_experiment(text)
        spec, warnings = submission.spec, submission.spec.warnings
        if context.data_directory is not None:
            warnings = await asyncio.to_thread(
                admission.check_here, spec, context.data_directory, own_environment(), file="", python=""
            )
    except ConfigInvalid as error:
        return Verdict(text=text, problems=error.problems, warnings=error.warnings)
    except InvalidInput as error:
        return Verdict(text=text, problems=[Problem(message=str(error))])
    return Verdict(text=text, warnings=warnings, submission=submission)


def refused(verdict: Verdict, error: NniManagerError) -> Verdict:
    """The verdict on a valid file whose experiment could not be created."""
    return Verdict(text=verdict.text, problems=[Problem(message=str(error))], warnings=verdict.warnings)


async def fields_of(request: Request) -> dict[str, str]:
    """The text of each field, or the content of its file; unselected files are left out. Raises InvalidInput.

    The form is ``multipart/form-data`` (RFC 7578), which browsers also send without JavaScript.
    """
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data") or "\n" in kind or "\r" in kind:
        raise InvalidInput("the form cannot be read; send it as multipart/form-data")
    sent = f"Content-Type: {kind}\r\n\r\n".encode() + await request.body()
    return await asyncio.to_thread(_fields, sent)  # megabytes of it take a while


def _fields(sent: bytes) -> dict[str, str]:
    message = message_from_bytes(sent, policy=HTTP)
    if not message.is_multipart():
        raise InvalidInput("the form cannot be read: it has no parts; check its multipart boundary")
    return dict(_field(part) for part in message.iter_parts() if part.get_filename() != "")


def _field(part: Message) -> tuple[str, str]:
    name = part.get_param("name", header="content-disposition")
    content = part.get_payload(decode=True)
    if not isinstance(name, str) or not isinstance(content, bytes):
        raise InvalidInput("the form cannot be read: a part has no name")
    try:
        return name, content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        sentence = f"{name} is not UTF-8 text: byte {error.start} is invalid; save the file as UTF-8"
        raise InvalidInput(sentence) from None


ROUTES = [Route("/new", _form), Route("/new", _sent, methods=["POST"])]
