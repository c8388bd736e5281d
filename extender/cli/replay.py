"""`extender replay`: asks the questions of a recording again, and shows which answers differ.

Without `--config` every answer must be the same. With it, the differences are what other settings would have decided, each
question in the recorded state. Exit codes: 0 all the same, 1 some differ, 2 wrong usage, 3 unreadable.
"""

import argparse
import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Final, cast

import msgspec

from extender.cli.files import STDIN, read_redaction_key, read_settings
from extender.cli.main import CommandError, Commands, say
from extender.cli.progress import progress
from extender.cli.sources import add_output, print_document, with_defaults
from extender.compose.replay import Replay, ReplayDifference, ReplayOutcome
from extender.model.documents import DocumentError
from extender.settings.configuration import Settings, in_pod_of, settings_document
from extender.wire.errors import WireError
from extender.wire.recordings.recording import RecordedAnswer
from extender.wire.recordings.redaction import REPLAYED_SECTIONS, Redactor

_SHOWN: Final = 20
_GZIP: Final = b"\x1f\x8b"
_UNREADABLE: Final = 3
MOST_LINE_BYTES: Final = 64 * 2**20  # eight times the default of server.maxBodyBytes
_SENTENCES: Final = {
    ReplayOutcome.UNKNOWN: "not in the recording, so not asked about",
    ReplayOutcome.REJECTED: "rejected",
    ReplayOutcome.ELSEWHERE: "placed elsewhere",
    ReplayOutcome.NARROWER: "fewer nodes to choose from",
    ReplayOutcome.PASSED: "placed instead of rejected",
    ReplayOutcome.PREEMPTION: "another preemption",
    ReplayOutcome.REASON: "rejected for another reason",
    ReplayOutcome.WIDER: "more nodes to choose from",
    ReplayOutcome.ORDER: "the same nodes in another order",
    ReplayOutcome.SCORES: "other scores",
}


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "replay",
        help="ask the questions of a recording again, and show what differs",
        examples=["recording.jsonl.gz --config config/extender.yaml"],
    )
    parser.add_argument("recording", metavar="FILE", help='the file of recorder.path, "-" for standard input')
    parser.add_argument("--config", metavar="FILE", help="decide with this configuration (default: the recorded one)")
    parser.add_argument(
        "--redact-key-file",
        metavar="FILE",
        help="the key of a redacted recording: gives names in the configuration the pseudonyms of the recording",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the differences."""
    lines = _Lines(arguments.recording)
    try:
        settings = read_settings(arguments.config) if arguments.config else None
        key = read_redaction_key(arguments.redact_key_file) if arguments.redact_key_file else b""
        replay = Replay(settings, Redactor(key) if key else None)
        with progress(f"replays {arguments.recording}"):
            replay.run(lines)
    except (CommandError, WireError, DocumentError, OSError, EOFError, zlib.error) as error:
        # 1 means that answers differ, so an unreadable recording needs a code of its own.
        texts = (
            error.lines if isinstance(error, CommandError) else (f"{arguments.recording}: {lines.place}{_text(error)}",)
        )
        for text in texts:
            say(f"extender: {text}", to=sys.stderr)
        return _UNREADABLE
    if lines.is_cut:
        say(f"extender: {arguments.recording}: the last record is cut off and was skipped", to=sys.stderr)
    if not replay.versions:
        say(f"extender: {arguments.recording}: holds no recording", to=sys.stderr)
        return _UNREADABLE
    changed = _changed(replay.recorded, settings)
    if arguments.output in {"table", "wide"}:
        say(*_table(replay, changed, sys.maxsize if arguments.output == "wide" else _SHOWN))
    else:
        print_document(_document(replay, changed), arguments.output)
    return 1 if replay.differences else 0


class _Lines:
    """The lines of a file, compressed or not. A last line without its end is skipped: the recorder was killed meanwhile."""

    def __init__(self, path: str) -> None:
        self.is_cut = False
        self._path = path
        self._number = 0

    @property
    def place(self) -> str:
        """Where reading is, as errors begin."""
        return f"line {self._number}: " if self._number else ""

    def __iter__(self) -> Iterator[bytes]:
        """Reads while it is iterated. Raises OSError, and WireError for a line that is too long."""
        with self._opened() as opened:
            try:
                while line := opened.readline(MOST_LINE_BYTES):
                    # Records end with a newline. `readline` also returns a shorter line at the end of the file.
                    self.is_cut = not line.endswith(b"\n")
                    if not self.is_cut:
                        self._number += 1
                        yield line
                    elif len(line) == MOST_LINE_BYTES:
                        self._number += 1
                        raise WireError("", f"is longer than {MOST_LINE_BYTES >> 20} MiB, as no record is")
            except EOFError:
                # gzip without its trailer: the recorder was killed, and what came before is good.
                self.is_cut = True

    def _opened(self) -> IO[bytes]:
        if self._path == STDIN:
            return sys.stdin.buffer
        with open(self._path, "rb") as opened:  # noqa: PTH123 (as below)
            is_compressed = opened.read(len(_GZIP)) == _GZIP
        return cast("IO[bytes]", gzip.open(self._path)) if is_compressed else open(self._path, "rb")  # noqa: PTH123 (the caller closes)


def _text(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "; ".join(error.problems) if isinstance(error, DocumentError) else str(error)


def _document(replay: Replay, changed: Mapping[str, tuple[object, object]]) -> object:
    return {
        "versions": replay.versions,
        "settings": {
            path: {"recorded": msgspec.to_builtins(before), "replayed": msgspec.to_builtins(after)}
            for path, (before, after) in changed.items()
        },
        "questions": replay.asked,
        "pods": len(replay.pods),
        "changes": replay.changes,
        "differences": with_defaults(replay.differences),
    }


def _changed(recorded: Settings | None, given: Settings | None) -> dict[str, tuple[object, object]]:
    if recorded is None or given is None:
        return {}
    before, after = (
        _flat({name: settings_document(settings)[name] for name in REPLAYED_SECTIONS})
        # Some defaults depend on the pod of the service. They are filled in as at the recording, so that they are no
        # difference.
        for settings in (recorded, in_pod_of(given, recorded))
    )
    paths = sorted(before.keys() | after.keys())
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def _flat(document: object, path: str = "") -> dict[str, object]:
    if not isinstance(document, dict) or not document:
        return {path: document}
    parts = (_flat(value, f"{path}.{name}" if path else name) for name, value in document.items())
    return {name: value for part in parts for name, value in part.items()}


def _table(replay: Replay, changed: Mapping[str, tuple[object, object]], most: int) -> Iterator[str]:
    for path, (before, after) in changed.items():
        yield f"{path}: {_text_of(before)} -> {_text_of(after)}"
    differences = _by_pod(replay.differences)
    if differences:
        rows = [("POD", "VERB", "OUTCOME", "RECORDED", "REPLAYED", "WHY"), *map(_row, differences[:most])]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        if (more := len(differences) - most) > 0:
            yield f"… {more} more; -o wide has all"
    yield f"{replay.asked} questions about {len(replay.pods)} pods, {replay.changes} changes: {len(replay.differences)} answers differ"
    counts = Counter(difference.outcome for difference in differences)
    yield from (
        f"  {count} pod{'s' * (count != 1)}: {_SENTENCES[outcome]}"
        for outcome in ReplayOutcome
        if (count := counts[outcome])
    )


def _by_pod(differences: Iterable[ReplayDifference]) -> list[ReplayDifference]:
    """The last difference of each pod, verb and outcome, the gravest outcomes first."""
    # The scheduler retries a pod many times, and each retry may differ in the same way.
    last = {(difference.uid, difference.verb, difference.outcome): difference for difference in differences}
    order = list(ReplayOutcome)
    return sorted(last.values(), key=lambda difference: order.index(difference.outcome))


def _text_of(value: object) -> str:
    return "-" if value is None else msgspec.json.encode(value).decode().strip('"')


def _row(difference: ReplayDifference) -> tuple[str, ...]:
    recorded, replayed = _brief(difference.recorded), _brief(difference.replayed)
    why = ", ".join(difference.why) or ("another is preferred" if difference.outcome is ReplayOutcome.ELSEWHERE else "")
    return difference.pod or difference.uid, difference.verb, difference.outcome.value, recorded, replayed, why


def _brief(answer: RecordedAnswer) -> str:
    if answer.passed:
        more = len(answer.passed) - 1
        return answer.passed[0] + (f" and {more} more" if more else "")
    if answer.scores:
        best = max(answer.scores, key=lambda name: answer.scores[name])
        return f"{best} scores {answer.scores[best]}"
    if answer.victims:
        return f"{len(answer.victims)} candidates"
    text = answer.error or ", ".join(answer.reasons) or "no node"
    return f"{text}; preempts on {answer.plan[0]}" if answer.plan else text
