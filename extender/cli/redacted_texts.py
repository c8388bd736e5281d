"""Replaces the names in messages, label values of metrics and settings, with the pseudonyms of a recording without names.

In a recording each text is one name. A message is a sentence with names in it. So each word of it is replaced, unless it is a number or
a word of the extender's own messages. Those are read from the code of the modules that make messages: a new message needs no list here.
A word that is also a name in the cluster, as far as that was seen, is replaced too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pkgutil import iter_modules
from types import CodeType
from typing import Any, Final

from extender.wire.objects.kinds import WATCHED_KINDS
from extender.wire.recordings.redaction import WORDS, Redactor

# What a name consists of. A point or a hyphen at the end of a word belongs to the sentence.
_WORD: Final = re.compile(r"[^\s,;:!?()\[\]{}\"'`=<>|/…]*[^\s,;:!?()\[\]{}\"'`=<>|/….-]")
# Numbers, versions, and marks such as the plus of a check that passes. An address of four numbers is none.
_PLAIN: Final = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?%?|[+-]?Inf|NaN|v?\d+\.\d+\.\d+|[-+*#&@%~]+")
# The packages and modules that make messages, label values of metrics, and values of settings.
_SOURCES: Final = (
    *("doctor", "kube", "tasks", "telemetry", "certificates", "settings", "compose", "features.quotas.report"),
    *("server.health", "server.transport", "model.rejections"),
    *("cli.deployment_facts", "cli.doctor", "cli.policy_facts", "cli.service_client", "cli.support_bundle"),
)


class TextRedactor:
    """Replaces names in texts. It remembers what it was told are names."""

    def __init__(self, key: bytes) -> None:
        self.names = Redactor(key)
        self._known: set[str] = set()
        self._words = WORDS | frozenset(_message_words()) | {watched.kind.name for watched in WATCHED_KINDS}

    def name(self, text: str) -> str:
        """The pseudonym of a name, which is then replaced in messages too."""
        pseudonym = self.names.text(text)
        if pseudonym != text:
            self._known.update(text.split("/"))
        return pseudonym

    def message(self, text: str) -> str:
        """A text of several words, without the names in it. O(words)."""
        return _WORD.sub(lambda match: self._word(match[0]), text)

    def document(self, value: Any) -> Any:
        """A value of JSON whose keys are field names of the extender, with each text in it as a message."""
        if isinstance(value, str):
            return self.message(value)
        if isinstance(value, list):
            return [self.document(item) for item in value]
        if isinstance(value, dict):
            return {self.message(name): self.document(inner) for name, inner in value.items()}
        return value

    def _word(self, word: str) -> str:
        if word in self._known:
            return self.names.text(word)
        # `Redactor.text` keeps times and amounts.
        return word if word in self._words or _PLAIN.fullmatch(word) else self.names.text(word)


def _message_words() -> Iterator[str]:
    for source in _SOURCES:
        for name in _modules(f"extender.{source}"):
            spec = find_spec(name)
            if spec is not None and isinstance(spec.loader, InspectLoader):
                code = spec.loader.get_code(name)
                for text in _texts(code) if code is not None else ():
                    yield from _WORD.findall(text)


def _modules(name: str) -> Iterator[str]:
    """The module, and the modules below it where it is a package."""
    yield name
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        for found in iter_modules(import_module(name).__path__, f"{name}."):
            yield from _modules(found.name)


def _texts(code: CodeType) -> Iterator[str]:
    """The texts of a module and of its functions, also in tuples and sets. Docstrings, which have examples of names, are left out."""
    is_documented = code.co_consts[:1] and isinstance(code.co_consts[0], str) and code.co_name != "<lambda>"
    for constant in code.co_consts[1 if is_documented else 0 :]:
        yield from _texts(constant) if isinstance(constant, CodeType) else _texts_in(constant, code.co_names)


def _texts_in(constant: object, imported: Collection[str]) -> Iterator[str]:
    """The texts in a constant. The names that an import takes are a constant too, but no message."""
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, tuple | frozenset):
        for item in constant:
            yield from () if item in imported else _texts_in(item, imported)
