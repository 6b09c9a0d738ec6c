"""Masks values that look like secrets in a line of a program, of settings or of a command.

A value is judged by its name, or by a token format of a service. The time is proportional to the length: a search
blocks all other threads, so runs of characters are bounded, and long lines are not parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nni_manager.platform_kit.secret_names import is_always_secret, is_doubtful, is_secret

STARS = "***"
#: Maximum length of a parsed line; a longer one is masked completely if it may contain a secret.
_LONGEST = 4096
#: Token and key formats: GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS, JSON Web Tokens, Azure.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_\w{20,}+|glpat-[\w-]{16,}+|hf_[A-Za-z0-9]{16,}+"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9]))"
    r"|(?<![\w-])(?:sk-(?=\D{0,60}\d)[\w-]{20,}+|xox[a-z]-[\w-]{10,}+|eyJ[\w-]{8,}+\.[\w.-]{8,}+)"
    r"|(?<=\bBearer )(?=[^\s\d]{0,60}\d)[\w.~+/=-]{12,}+"
    r"|(?:(?<=AccountKey=)|(?<=SharedAccessKey=)|(?<=[?&;]sig=))[^&;\s\"'$*]{8,}+"
)
#: Parts of a secret's name, and of a line with a secret.
_IN_NAMES = "pass|pwd|secret|token|credential|auth|key"
_HINT = re.compile(rf"{_IN_NAMES}|gh[pousr]_|github_pat_|glpat-|hf_|a[ks]ia|sk-|xox|eyj|bearer|sig=", re.I)
_BLANK = r"[ \t]{0,20}+"
_NAME = r"(?<![\w.-])(?P<name>[\w.-]{1,64}+)"
#: Text between a name and its value: a type annotation.
_ANNOTATION = rf"(?:{_BLANK}:{_BLANK}[\w.| ]{{1,40}}+(?:\[[\w.|, \[\]]{{0,40}}\][\w.| ]{{0,40}}+)?(?==))?"
#: A quoted text, which may contain the other quote and escaped ones. In a notebook the quotes are escaped.
_TEXT = r"""(?P<quote>\\?(?:\"\"\"|'''|["']))(?P<value>(?:(?!(?P=quote))(?:\\.|[^\\\n])){4,}+)(?P=quote)"""
#: A text assigned to a name, in code and in JSON: ``token = "…"``, ``"token": "…"``, ``config["token"] = "…"``.
_GIVEN = re.compile(rf"{_NAME}(?:\\?[\"'])?\]?{_ANNOTATION}{_BLANK}[:=]{_BLANK}[rbfuRBFU]{{0,2}}{_TEXT}")
#: ``set("TOKEN", "…")``.
_ARGUMENT = re.compile(rf"\({_BLANK}\\?[\"']{_NAME}\\?[\"']{_BLANK},{_BLANK}[rbfuRBFU]{{0,2}}{_TEXT}")
#: ``credentials = ("user", "…")``: the whole value.
_SEVERAL = re.compile(
    rf"{_NAME}(?:\\?[\"'])?\]?{_BLANK}[:=]{_BLANK}[(\[](?P<value>{_BLANK}[\"'][^()\[\]]{{4,200}})[)\]]"
)
#: A whole line of YAML or of an environment file.
_WHOLE_LINE = re.compile(
    rf"^(?P<margin>[+\- ]?[ \t]*+)(?:- )?(?:export )?{_NAME}(?P<sign>: ++|=)"
    r"(?![{\[(\"'])(?P<value>[^\s(){}]{4,}+)(?:[ \t]++#.*)?\r?\Z"
)
#: An argument in a call that is not a text: ``token=args.token,``.
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:(?:\.[A-Za-z_]\w*)+,?|,)")
#: A variable before a command.
_VARIABLE = re.compile(r"(?<![\w.$-])(?P<name>[A-Z_][A-Z0-9_]{0,63}+)=(?P<value>[\w+/=.~:-]{8,}+)(?![\w(\[{])")
_OPTION = re.compile(r"(?<![\w-])--?(?P<name>\w[\w-]{0,63}+)(?:=|[ \t]++)(?P<value>[\w+/=.~:-]{8,}+)(?![\w(\[{])")
#: A variable of the environment in a shell.
_REFERRED = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\})")
#: A generated key or password.
_RANDOM = re.compile(r"(?=\D{0,200}\d)(?=.{0,200}[A-Za-z])[\w+/=~-]{16,}")
#: Settings of a command: ``NAME=value``, ``--name value``, ``--name=value``, quoted or not.
_SETTING = (
    rf"(?<![\w.$-])(?=[\w.-]{{0,60}}?(?i:{_IN_NAMES}))"
    + r"(?P<name>-{0,2}\w[\w.-]{0,63}+)(?P<sign>=|[ \t]{1,20}+(?:\\\n[ \t]{0,80}+)?)"
)
_IN_QUOTES = re.compile(rf"{_SETTING}(?P<quote>[\"'])(?P<value>(?:(?!(?P=quote))(?:\\.|[^\\])){{1,4096}}+)(?P=quote)")
_BARE = re.compile(rf"{_SETTING}(?P<value>[^\s\"'`;&|<>]++)")
#: User and password in an address.
_LOGIN = re.compile(r"(?<=://)(?P<name>[^/\s:@\"']{0,64}+):(?P<value>[^/\s@\"'$]{1,200}+)(?=@)")
#: A value that is masked after any secret's name.
_SAMPLE = "x1y2z3w4v5u6t7s8"
#: Names of containers of secrets, which are not secrets.
_PLACE = re.compile(r"(?:file|path|dir|directory|folder)$", re.IGNORECASE)


def masked_command(text: str) -> str:
    """A command, or another text of a config, without values that look like secrets. References stay: ``$TOKEN``."""
    if _HINT.search(text) is None and "://" not in text:
        return text
    text = "\n".join(line if len(line) <= _LONGEST else masked_line(line)[0] for line in text.split("\n"))
    text, _ = _masked(text, _LOGIN, lambda match: match["value"] != STARS)
    for pattern in (_IN_QUOTES, _BARE):
        text, _ = _masked(text, pattern, _is_secret_setting)
    return "\n".join(masked_line(line)[0] for line in text.split("\n"))


def holds_stars(text: str) -> bool:
    """Whether `masked_command` returned the text: it has stars in place of a value."""
    filled = text.replace(STARS, _SAMPLE)
    return filled != text and masked_command(filled) != filled


def is_secret_option(text: str) -> bool:
    """Whether the next word of a command is a secret: ``--token``."""
    return text.startswith("-") and is_secret(text) and not is_doubtful(text) and _PLACE.search(text) is None


def _is_secret_setting(match: re.Match[str]) -> bool:
    name, value = match["name"], match["value"]
    is_expanded = value.startswith("$") and match.groupdict().get("quote") != "'"
    if is_expanded or value.startswith(STARS) or _PLACE.search(name) or not is_secret(name):
        return False
    if match["sign"] != "=" and (not name.startswith("-") or value.startswith("-")):
        return False
    return name.isupper() or not is_doubtful(name) or _RANDOM.fullmatch(value) is not None


def masked_line(line: str) -> tuple[str, int]:
    """(the line without values that look like secrets, number of masked values). The mark of a diff line stays."""
    if _HINT.search(line) is None:
        return line, 0
    if len(line) > _LONGEST:
        return (line[0] if line[0] in "+- " else "") + STARS, 1
    count = 0
    for pattern, judge in _BY_NAME:
        line, found = _masked(line, pattern, judge)
        count += found
    line, found = _TOKEN.subn(STARS, line)
    return line, count + found


def _masked(line: str, pattern: re.Pattern[str], judge: Callable[[re.Match[str]], bool]) -> tuple[str, int]:
    parts: list[str] = []
    done = at = 0
    while (match := pattern.search(line, at)) is not None:
        at = match.end("name")  # the text under another name may contain one
        if judge(match):
            start, at = match.span("value")
            parts += line[done:start], STARS
            done = at
    return "".join((*parts, line[done:])), len(parts) // 2


def _is_secret_text(match: re.Match[str]) -> bool:
    name, value = match["name"], match["value"]
    if value == STARS or _REFERRED.fullmatch(value) or not is_secret(name):
        return False
    return not is_doubtful(name) or _RANDOM.fullmatch(value) is not None


def _is_login(match: re.Match[str]) -> bool:
    return is_always_secret(match["name"]) or match["name"].lower() == "auth"


def _is_secret_line(match: re.Match[str]) -> bool:
    is_argument = match["sign"] == "=" and len(match["margin"]) > 1 and _REFERENCE.fullmatch(match["value"])
    return not is_argument and _is_secret_text(match)


def _is_secret_word(match: re.Match[str]) -> bool:
    return any(map(str.isdigit, match["value"])) and _is_secret_text(match)


_BY_NAME: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_GIVEN, _is_secret_text),
    (_ARGUMENT, _is_secret_text),
    (_SEVERAL, _is_login),
    (_WHOLE_LINE, _is_secret_line),
    (_VARIABLE, _is_secret_word),
    (_OPTION, _is_secret_word),
)
