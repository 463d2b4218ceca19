"""The command that scores a run, or any system's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyorder.cli.options import AS_JSON
from anyorder.cli.output import print_json, print_line, results, table
from anyorder.cli.progress import Watcher
from anyorder.cli.text_scores import evaluate_files, read_text
from anyorder.config.data import Splits
from anyorder.config.section import WIDEST_BEAM
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.evaluation.evaluate import Evaluated
    from anyorder.evaluation.results import BeamSweep
    from anyorder.metrics import Options


DEFAULT_SPLIT: Splits = "test"
OF_RUNS, OF_FILES = "For a run", "For files"


def evaluate(
    run: Annotated[Path | None, typer.Argument(help="Folder of a trained model.", show_default=False)] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Keys of [decode] and [data] to change, e.g. decode.merge=true."
        ),
    ] = None,
    metrics: str = typer.Option(
        "bleu,chrf,ter,exact",
        "--metrics",
        help="Any of bleu, chrf, ter, ribes, meteor, cider, exact and python, with commas.",
    ),
    ref: list[Path] | None = typer.Option(
        None,
        "--ref",
        help="What should have been written, once for each reference; for a run default its targets.",
    ),
    tokenize: str | None = typer.Option(
        None,
        "--tokenize",
        help="How sacreBLEU splits words: 13a, none, intl, char, zh, ja-mecab, ...; default 13a, "
        "for a run as its recipe splits targets.",
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Capitals don't count."),
    lang: str | None = typer.Option(None, "--lang", help="Language, for METEOR; default en, or the run's."),
    cider_tokenize: str = typer.Option(
        "ptb", "--cider-tokenize", help="How CIDEr-D splits words: ptb, as published, or as --tokenize."
    ),
    as_json: bool = AS_JSON,
    split: Splits | None = typer.Option(
        None, "--split", help=f"To decode; default {DEFAULT_SPLIT}.", rich_help_panel=OF_RUNS
    ),
    beam: str | None = typer.Option(
        None,
        "--beam",
        help="A beam, or several, e.g. 1-20 or 1,2,5: the best on dev is taken.",
        rich_help_panel=OF_RUNS,
    ),
    by: str | None = typer.Option(
        None,
        "--by",
        help="Metric to pick the beam by; default the recipe's train.select, or else bleu.",
        rich_help_panel=OF_RUNS,
    ),
    all_beams: bool = typer.Option(
        False, "--all-beams", help="Score the split with every beam, for a picture.", rich_help_panel=OF_RUNS
    ),
    lines: int | None = typer.Option(
        None, "--lines", min=1, help="Only the first so many, as a trial.", rich_help_panel=OF_RUNS
    ),
    again: bool = typer.Option(
        False, "--again", help="Decode anew what has been decoded before.", rich_help_panel=OF_RUNS
    ),
    device: str | None = typer.Option(None, "--device", help="auto, cpu, cuda, ...", rich_help_panel=OF_RUNS),
    hyp: Path | None = typer.Option(
        None,
        "--hyp",
        help="What a system wrote, a line each; plain, .gz or .xz.",
        rich_help_panel=OF_FILES,
    ),
    sentences: bool = typer.Option(
        False, "--sentences", help="Score each line too.", rich_help_panel=OF_FILES
    ),
    baseline: Path | None = typer.Option(
        None,
        "--baseline",
        help="Another system's output, to test the difference for significance.",
        rich_help_panel=OF_FILES,
    ),
    samples: int = typer.Option(
        1000, "--samples", min=1, help="Of each test with --baseline.", rich_help_panel=OF_FILES
    ),
    seed: int = typer.Option(
        12345,
        "--seed",
        min=0,
        help="Of the samples; the default is sacreBLEU's.",
        rich_help_panel=OF_FILES,
    ),
) -> None:
    """Decode a split with a trained model and score it, or score text that is there already.

    A run's scores, each with its signature, and its outputs go to RUN/results. Of several beams the best on
    dev is taken. What has been decoded with a beam is kept, so a stopped command goes on with the next one.

    With --baseline, a paired bootstrap and approximate randomisation say how often chance alone makes such a
    difference (p), and intervals hold 95 % of the samples.

    Example: `anyorder evaluate runs/l2r --split test --beam 1-20`

    Example: `anyorder evaluate --hyp output.txt --ref test.de --metrics bleu,meteor --lang de`
    """
    from anyorder.metrics import Options

    of_runs = {"--split": split, "--beam": beam, "--by": by, "--all-beams": all_beams, "--lines": lines}
    of_runs |= {"--again": again, "--device": device}
    of_files = {"--hyp": hyp, "--sentences": sentences, "--baseline": baseline}
    names = metric_names("--metrics", metrics)
    words = {"tokenize": tokenize, "lowercase": lowercase or None, "language": lang}
    words["cider_tokenize"] = cider_tokenize
    if run is None:
        _refuse(of_runs, why="is for the folder of a run, and none is given")
        evaluate_files(
            hyp,
            ref or [],
            metrics=names,
            options=_changed(Options(), words),
            sentences=sentences,
            baseline=baseline,
            samples=samples,
            seed=seed,
            as_json=as_json,
        )
        return
    from anyorder.evaluation.evaluate import Evaluator, ScoringSettings

    _refuse(of_files, why=f"is for files, and {run} is given as a run")
    _check_sweep(beam, by=by, all_beams=all_beams, overrides=overrides or [])
    references = [read_text(path) for path in ref] if ref else None
    with Watcher() as watcher:
        evaluator = Evaluator.load(
            run, listener=watcher, overrides=overrides or [], first_lines=lines, device=device
        )
        options = _changed(Options.for_side(evaluator.recipe.text.target), words)
        evaluated = evaluator.evaluate(
            split or DEFAULT_SPLIT,
            beams=parse_beams(beam),
            by=by,
            all_beams=all_beams,
            again=again,
            scoring=ScoringSettings(metrics=names, options=options, references=references),
        )
    if as_json:
        print_json(evaluated.report.model_dump(mode="json"))
    else:
        _show(run, evaluated)


def parse_beams(given: str | None) -> list[int]:
    """Beams from the smallest, of a text such as 5, 1,2,5 or 1-20; none of None."""
    if given is None:
        return []
    beams: set[int] = set()
    for part in given.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        short = max(len(first), len(last)) <= len(str(WIDEST_BEAM)) and first.isdecimal() and last.isdecimal()
        if not (short and 1 <= int(first) <= int(last) <= WIDEST_BEAM):
            raise UserError(
                f"--beam {given}: must be a number from 1 to {WIDEST_BEAM}, a range or a list of them, "
                "e.g. 5, 1-20 or 1,2,5"
            )
        beams.update(range(int(first), int(last) + 1))
    return sorted(beams)


def _check_sweep(beam: str | None, *, by: str | None, all_beams: bool, overrides: Sequence[str]) -> None:
    if by is not None:
        metric_names("--by", by)
    if beam is not None and any(text.partition("=")[0].strip() == "decode.beam" for text in overrides):
        raise UserError(f"--beam {beam} and decode.beam: give one of them, not both")
    if len(parse_beams(beam)) < 2:
        _refuse({"--by": by, "--all-beams": all_beams}, why="is for several beams, e.g. --beam 1-20")


def _show(run: Path, evaluated: Evaluated) -> None:
    report = evaluated.report
    if report.sweep is not None:
        _show_sweep(report.sweep)
    how = "" if report.sweep is None else f", the best on dev by {report.sweep.metric}"
    how += "".join(f", with {other}" for other in report.decode.others)
    print_line(f"{run}: {report.lines} lines of {report.split}, beam {report.decode.beam}{how}")
    for score in report.scores.values():
        print_line(f"{score.label:<13} {score.score:6.2f}  {score.signature}")
    for remark in report.remarks:
        print_line(remark)
    if report.unfinished:
        print_line(f"cut off before their end: {report.unfinished}")
    if report.unknown:
        print_line(f"with a word that the model doesn't know (<unk>): {report.unknown}")
    print_line(f"results: {evaluated.path}")


def _show_sweep(sweep: BeamSweep) -> None:
    drawn = table("beam", *(f"{split} {sweep.metric}" for split in sweep.scores))
    for beam in sorted(next(iter(sweep.scores.values()))):
        style = "bold" if beam == sweep.beam else None
        drawn.add_row(str(beam), *(f"{scores[beam]:.2f}" for scores in sweep.scores.values()), style=style)
    results.print(drawn, "")


# --- flags ---


def metric_names(flag: str, given: str) -> list[str]:
    """Names with commas between them, all of METRICS."""
    from anyorder.metrics import METRICS

    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in METRICS:
            raise UserError(f"{flag} {given}: no metric {name!r}; allowed: {','.join(METRICS)}")
    return names


def _changed(options: Options, words: Mapping[str, Any]) -> Options:
    """With what the flags say; None: they say nothing."""
    return replace(options, **{key: value for key, value in words.items() if value is not None})


def _refuse(flags: Mapping[str, object], *, why: str) -> None:
    for flag, value in flags.items():
        if value not in (None, False):
            raise UserError(f"{flag}{'' if value is True else f' {value}'}: {why}")
