"""evaluate: decode and score a split with a trained model, or score text files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyorder.cli.options import AS_JSON, DEVICE_HELP
from anyorder.cli.output import print_json, print_line, results, table
from anyorder.cli.progress import Watcher
from anyorder.config.data import Splits
from anyorder.config.section import WIDEST_BEAM
from anyorder.errors import UserError
from anyorder.metrics import DEFAULT, METRICS, Options

if TYPE_CHECKING:
    from anyorder.evaluation.evaluate import Evaluated
    from anyorder.evaluation.results import BeamSweep
    from anyorder.evaluation.significance import PairedTests
    from anyorder.metrics import Metric, Result


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
        ",".join(DEFAULT), "--metrics", help=f"Any of {', '.join(METRICS)}, separated by commas."
    ),
    ref: list[Path] | None = typer.Option(
        None,
        "--ref",
        help="File of references. May be repeated. Default for a run: its targets.",
    ),
    drafts: Path | None = typer.Option(
        None,
        "--drafts",
        help="File of what was edited, for gleu, edits and errant. Default for an editor: its drafts.",
    ),
    tokenize: str | None = typer.Option(
        None,
        "--tokenize",
        help="How sacreBLEU splits words: 13a, none, intl, char, zh, ja-mecab, ...; default: 13a, "
        "for a run as its recipe splits targets.",
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Ignore case."),
    lang: str | None = typer.Option(
        None, "--lang", help="Language, for METEOR; default: en, for a run that of its targets."
    ),
    cider_tokenize: str = typer.Option(
        "ptb", "--cider-tokenize", help="How CIDEr-D splits words: ptb, as published, or as --tokenize."
    ),
    as_json: bool = AS_JSON,
    split: Splits | None = typer.Option(
        None, "--split", help=f"Split to decode; default: {DEFAULT_SPLIT}.", rich_help_panel=OF_RUNS
    ),
    beam: str | None = typer.Option(
        None,
        "--beam",
        help="A beam, or several, e.g. 1-20 or 1,2,5: the best on dev is used.",
        rich_help_panel=OF_RUNS,
    ),
    by: str | None = typer.Option(
        None,
        "--by",
        help="Metric that selects the beam; default: the recipe's train.select, otherwise bleu.",
        rich_help_panel=OF_RUNS,
    ),
    all_beams: bool = typer.Option(
        False,
        "--all-beams",
        help="Score the split with every beam, to plot score against beam.",
        rich_help_panel=OF_RUNS,
    ),
    lines: int | None = typer.Option(
        None, "--lines", min=1, help="Decode only this many lines, for a trial.", rich_help_panel=OF_RUNS
    ),
    again: bool = typer.Option(
        False, "--again", help="Decode again what was decoded before.", rich_help_panel=OF_RUNS
    ),
    device: str | None = typer.Option(None, "--device", help=DEVICE_HELP, rich_help_panel=OF_RUNS),
    hyp: Path | None = typer.Option(
        None,
        "--hyp",
        help="A system's hypotheses, one per line; plain, .gz or .xz.",
        rich_help_panel=OF_FILES,
    ),
    sentences: bool = typer.Option(
        False, "--sentences", help="Score each line too.", rich_help_panel=OF_FILES
    ),
    baseline: Path | None = typer.Option(
        None,
        "--baseline",
        help="Another system's hypotheses, to test the difference for significance.",
        rich_help_panel=OF_FILES,
    ),
    samples: int = typer.Option(
        1000, "--samples", min=1, help="Samples of each test with --baseline.", rich_help_panel=OF_FILES
    ),
    seed: int = typer.Option(
        12345,
        "--seed",
        min=0,
        help="Seed of the samples; the default is sacreBLEU's.",
        rich_help_panel=OF_FILES,
    ),
) -> None:
    """Decode a split with a trained model and score it, or score existing text.

    The scores of a run, with their signatures, and its hypotheses are written to RUN/results. Of several
    beams, the best on dev is used. A stopped command continues with the first beam that is not decoded yet.

    With --baseline, a paired bootstrap and approximate randomisation estimate how often chance alone makes
    such a difference (p), and intervals hold 95 % of the samples.

    Example: `anyorder evaluate runs/l2r --split test --beam 1-20`

    Example: `anyorder evaluate --hyp output.txt --ref test.de --metrics bleu,meteor --lang de`
    """
    of_runs = {"--split": split, "--beam": beam, "--by": by, "--all-beams": all_beams, "--lines": lines}
    of_runs |= {"--again": again, "--device": device}
    of_files = {"--hyp": hyp, "--sentences": sentences, "--baseline": baseline}
    names = metric_names("--metrics", metrics)
    given = {"tokenize": tokenize, "lowercase": lowercase or None, "language": lang}
    given["cider_tokenize"] = cider_tokenize
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if run is None:
        _refuse(of_runs, why="is for the folder of a run, and none is given")
        files = _read_files(hyp, ref or [], baseline=baseline, drafts=drafts)
        scored = _score_files(
            files, metrics=names, options=replace(Options(), **changes), samples=samples, seed=seed
        )
        show = _print_as_json if as_json else _print_for_people
        show(scored, sentences=sentences)
        return
    from anyorder.evaluation.evaluate import Evaluator, ScoringSettings

    _refuse(of_files, why=f"is for files, and {run} is given as a run")
    _check_sweep(beam, by=by, all_beams=all_beams, overrides=overrides or [])
    references = [_read_text(path) for path in ref] if ref else None
    with Watcher() as watcher:
        evaluator = Evaluator.load(
            run, listener=watcher, overrides=overrides or [], first_lines=lines, device=device
        )
        options = replace(Options.for_side(evaluator.recipe.text.target), **changes)
        evaluated = evaluator.evaluate(
            split or DEFAULT_SPLIT,
            beams=parse_beams(beam),
            by=by,
            all_beams=all_beams,
            again=again,
            scoring=ScoringSettings(
                metrics=names,
                options=options,
                references=references,
                drafts=None if drafts is None else _read_text(drafts),
            ),
        )
    if as_json:
        print_json(evaluated.report.model_dump(mode="json"))
    else:
        _show(run, evaluated)


# --- flags ---


def metric_names(flag: str, given: str) -> list[str]:
    """Split a list of metrics at its commas and check that METRICS has them all."""
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in METRICS:
            raise UserError(f"{flag} {given}: no metric {name!r}; allowed: {','.join(METRICS)}")
    return names


def parse_beams(given: str | None) -> list[int]:
    """Parse beams such as 5, 1,2,5 or 1-20, and sort them; None gives an empty list."""
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


def _refuse(flags: Mapping[str, object], *, why: str) -> None:
    for flag, value in flags.items():
        if value not in (None, False):
            raise UserError(f"{flag}{'' if value is True else f' {value}'}: {why}")


# --- runs ---


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


# --- files ---


@dataclass(frozen=True)
class _Files:
    """The text to score, line by line."""

    hypotheses: list[str]
    references: list[list[str]]
    baseline: list[str] | None
    drafts: list[str] | None


@dataclass(frozen=True)
class _Scored:
    """Scores by metric, and the tests of their differences from a baseline, if there is one."""

    scores: Mapping[str, Result]
    comparisons: Mapping[str, PairedTests]


def _read_files(
    hyp: Path | None, ref: Sequence[Path], *, baseline: Path | None, drafts: Path | None
) -> _Files:
    if hyp is None:
        raise UserError("give RUN, the folder of a trained model, or --hyp and --ref")
    if not ref:
        raise UserError(f"--hyp {hyp}: give --ref too, a file of references")
    hypotheses = _read_text(hyp)

    def read_beside(path: Path, flag: str) -> list[str]:
        lines = _read_text(path)
        if len(lines) != len(hypotheses):
            raise UserError(
                f"{hyp} has {len(hypotheses)} lines but {path} has {len(lines)}; "
                f"--hyp and {flag} must have equally many"
            )
        return lines

    return _Files(
        hypotheses=hypotheses,
        references=[read_beside(path, "--ref") for path in ref],
        baseline=None if baseline is None else read_beside(baseline, "--baseline"),
        drafts=None if drafts is None else read_beside(drafts, "--drafts"),
    )


def _read_text(path: Path) -> list[str]:
    from anyorder.data.readers import read_lines

    lines = [text for _, text in read_lines(path)]
    if not lines:
        raise UserError(f"{path}: empty; allowed: one line or more")
    return lines


def _score_files(
    files: _Files, *, metrics: Sequence[str], options: Options, samples: int, seed: int
) -> _Scored:
    from anyorder.evaluation.significance import paired_tests
    from anyorder.metrics import evaluate as score

    given: dict[str, Any] = {"metrics": metrics, "options": options, "drafts": files.drafts}
    scores = score(files.hypotheses, files.references, **given)
    if files.baseline is None:
        return _Scored(scores, comparisons={})
    others = score(files.baseline, files.references, **given)
    tests = {name: paired_tests(scores[name], others[name], samples=samples, seed=seed) for name in scores}
    return _Scored(scores, comparisons=tests)


def _print_as_json(scored: _Scored, *, sentences: bool) -> None:
    """Print one object for each metric; sentences: first one for each line."""
    if sentences:
        for line, scores in enumerate(_by_line(scored.scores), start=1):
            print_json({"line": line, **scores})
    for name, result in scored.scores.items():
        shown: dict[str, Any] = {
            "metric": name,
            "score": result.score,
            "higher_is_better": result.metric.higher_is_better,
            "signature": result.signature,
        }
        if sentences:
            shown["sentence_signature"] = result.sentence_signature
        if name in scored.comparisons:
            shown |= asdict(scored.comparisons[name])
        print_json(shown)


def _print_for_people(scored: _Scored, *, sentences: bool) -> None:
    """Print one line for each metric, after the tests; sentences: first a table of each line's scores."""
    if sentences:
        drawn = table("line", *(_label(result.metric) for result in scored.scores.values()))
        for line, scores in enumerate(_by_line(scored.scores), start=1):
            drawn.add_row(str(line), *(f"{score:.2f}" for score in scores.values()))
        results.print(drawn)
    if scored.comparisons:
        _print_comparisons(scored)
    for name, result in scored.scores.items():
        test = scored.comparisons.get(name)
        interval = "" if test is None else f" ± {test.system.half_width:.2f}"
        print_line(f"{_label(result.metric):<13} {result.score:6.2f}{interval}  {result.signature}")
        if sentences and result.sentence_signature != result.signature:
            print_line(f"{'  of each line':<20}  {result.sentence_signature}")


def _print_comparisons(scored: _Scored) -> None:
    drawn = table("", "baseline", "system", "difference", "95 %", "p (bs)", "p (ar)")
    for name, compared in scored.comparisons.items():
        difference = compared.difference
        drawn.add_row(
            _label(scored.scores[name].metric),
            f"{compared.baseline.score:.2f}",
            f"{compared.system.score:.2f}",
            f"{difference.score:+.2f}",
            f"{difference.low:+.2f} to {difference.high:+.2f}",
            f"{compared.bootstrap_p:.4f}",
            f"{compared.randomisation_p:.4f}",
        )
    results.print(drawn)
    one = next(iter(scored.comparisons.values()))
    print_line(f"bs: paired bootstrap, ar: approximate randomisation; {one.samples} samples, seed {one.seed}")
    print_line("")


def _label(metric: Metric) -> str:
    """Name a metric, with an arrow where less is better."""
    return metric.name if metric.higher_is_better else f"{metric.name} ↓"


def _by_line(scores: Mapping[str, Result]) -> list[dict[str, float]]:
    """Turn the scores of each metric into the scores of each line."""
    columns = [result.sentence_scores().tolist() for result in scores.values()]
    return [dict(zip(scores, line, strict=True)) for line in zip(*columns, strict=True)]
