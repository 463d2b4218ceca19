"""METEOR 1.5, by the Java program that pycocoevalcap bundles."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from anyorder.errors import UserError
from anyorder.metrics.metric import Metric, Numbers, Options, References
from anyorder.metrics.sacrebleu import word_splitter


def find_jar(*parts: str, needed_by: str) -> Path:
    """Find a Java program of pycocoevalcap, and check that Java is installed, before anything is computed."""
    package = find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        raise UserError(f"{needed_by} needs pycocoevalcap: pip install 'anyorder[metrics]'")
    _find_java(needed_by)
    return Path(package.submodule_search_locations[0], *parts)


def run_java(arguments: Sequence[str | Path], *, lines: Sequence[str], needed_by: str) -> list[str]:
    """Run a Java program on lines of input and return its lines of output."""
    done = subprocess.run(
        # Otherwise the encoding depends on the locale.
        [_find_java(needed_by), "-Dfile.encoding=UTF-8", *arguments],
        input="".join(f"{line}\n" for line in lines).encode(errors="replace"),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UserError(f"{needed_by}: Java has failed: {said or f'exit code {done.returncode}'}")
    return done.stdout.decode().split("\n")[:-1]


def _find_java(needed_by: str) -> str:
    java = shutil.which("java")
    if java is None:
        raise UserError(f"{needed_by} needs Java 8 or later, and no `java` is on the path")
    return java


# How words are matched in each language. pycocoevalcap has paraphrases for English only.
MODULES = {
    "en": ("exact", "stem", "synonym", "paraphrase"),
    **dict.fromkeys(("de", "es", "fr", "ru"), ("exact", "stem")),
    "cs": ("exact",),
    **dict.fromkeys(("da", "fi", "hu", "it", "nl", "no", "pt", "ro", "sv", "tr"), ("exact", "stem")),
    "other": ("exact",),
}


# Languages that METEOR tokenises itself, as in published scores.
_SPLIT_BY_METEOR = ("en", "de", "es", "fr", "ru", "cs")
_BETWEEN = " ||| "


# Columns of METEOR's statistics.
_LENGTH, _REFERENCE_LENGTH, _CHUNKS, _MATCHES, _REFERENCE_MATCHES = 0, 1, -3, -2, -1


class Meteor(Metric):
    """METEOR for one language; case is ignored."""

    name = "METEOR"

    def __init__(self, options: Options) -> None:
        if options.language not in MODULES:
            raise UserError(
                f"meteor: language {options.language!r}: allowed: {', '.join(sorted(MODULES))} "
                "(other: any language, by exact words alone)"
            )
        self._language = options.language
        self._program = find_jar("meteor", "meteor-1.5.jar", needed_by="meteor")
        self._words = None if self._language in _SPLIT_BY_METEOR else word_splitter(options)

    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """Lengths, matches of each module, and chunks, for the best reference of each line."""
        questions = [
            _BETWEEN.join(["SCORE", *map(self._one_field, wanted), self._one_field(text)])
            for text, *wanted in zip(written, *references, strict=True)
        ]
        answers = [answer.split() for answer in self._ask(questions)]
        return _whole_lines_unbroken(np.array(answers, dtype=np.float64))

    def scores(self, sums: Numbers) -> Numbers:
        """Apply the program's formula, in per cent."""
        question = _BETWEEN.join(["EVAL", *(" ".join(map(str, row)) for row in sums.tolist())])
        with TemporaryDirectory() as folder:
            # Loading the paraphrases takes ten seconds, and the formula doesn't need them.
            no_paraphrases = Path(folder, "none.gz")
            no_paraphrases.write_bytes(gzip.compress(b""))
            *scores, _of_all = self._ask([question], "-a", no_paraphrases)
        return 100 * np.array(scores, dtype=np.float64)

    def signature(self, *, references: int) -> str:
        """Version and language also determine the program's weights."""
        words = self._words.name if self._words else "meteor"
        modules = ",".join(MODULES[self._language])
        return f"nrefs:{references}|lang:{self._language}|case:lc|tok:{words}|modules:{modules}|version:1.5"

    def _one_field(self, text: str) -> str:
        """Remove separators of fields and lines from a text."""
        words = self._words.split(text) if self._words else text.split()
        return " ".join(words).replace("|||", " ")

    def _ask(self, questions: Sequence[str], *arguments: str | Path) -> list[str]:
        normalise = "-lower" if self._words else "-norm"
        modules = " ".join(MODULES[self._language])
        program: list[str | Path] = ["-Xmx2G", "-jar", self._program, "-", "-", "-stdio"]
        how = ["-l", self._language, normalise, "-m", modules]
        return run_java([*program, *how, *arguments], lines=questions, needed_by="meteor")


def _whole_lines_unbroken(statistics: Numbers) -> Numbers:
    """Count no chunk for lines that match completely, as METEOR does when it adds up lines."""
    all_matches = (
        (statistics[:, _MATCHES] == statistics[:, _LENGTH])
        & (statistics[:, _REFERENCE_MATCHES] == statistics[:, _REFERENCE_LENGTH])
        & (statistics[:, _CHUNKS] == 1)
    )
    statistics[all_matches, _CHUNKS] = 0
    return statistics
