"""Animate how a sentence was written: one SVG without scripts, which a README can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anyorder.inference.hypothesis import Step, written_at
from anyorder.viz.charts import escape

# Lengths are in pixels, times in seconds. With a monospaced font, the width of a word follows from its
# length, whichever font the reader's machine has.

_CHARACTER, _PADDING, _GAP = 12, 12, 24
_ROW, _LOG_ROW, _HEIGHT, _CHIP_HEIGHT, _MARGIN = 68, 142, 168, 40, 16
_DROP = 42  # how far above its gap a word appears
_LOG_SCALE, _LOG_GAP, _NOT_YET = 0.66, 30, 0.25
_HOLD, _CLEAR, _BEAT = 2.6, 0.8, 1.3  # how long the finished sentence stays, fades; one insertion
_POINT, _OPEN, _LAND = (
    0.35,
    0.6,
    0.85,
)  # shares of a beat: the caret points, the gap is open, the word has landed
_TINTS = ((79, 70, 229), (190, 30, 110), (180, 83, 9))  # first, middle, last: white is readable on all
_EDGE_FILL = "#6e7781"
_CARET = f'<path d="M-7 {_ROW + 36}L0 {_ROW + 26}L7 {_ROW + 36}z" fill="#d97706"/>'
_STYLE = """<style>
text{font:600 20px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;\
text-anchor:middle;dominant-baseline:central;fill:#fff}
text.quiet{fill:#818b98;font-weight:400}
circle{fill:#818b98;opacity:.7}
svg>g{animation:%.1fs infinite ease-in-out}
@media(prefers-reduced-motion:reduce){svg>g{animation:none}}
</style>"""


@dataclass(frozen=True)
class _Frame:
    """Position and opacity of an element at one time of the loop."""

    time: float
    x: float
    y: float = 0
    opacity: float = 1


def svg(steps: Sequence[Step]) -> str:
    """An SVG that repeats how the sentence was written: a caret shows a gap, it opens, a word drops in.

    steps: at least one. The SVG needs neither script nor font, so it plays inside an image. Its first frame
    is the finished sentence, which is also what a reader sees who has turned motion off.
    """
    labels = ["<s>", *steps[-1].canvas, "</s>"]
    steps_by_word = [0, *written_at(steps), 0]
    centres = [_centres(labels, [step <= shown for step in steps_by_word]) for shown in range(len(steps) + 1)]
    log_centres = _log_centres(steps)
    half_width = _MARGIN + max(
        centres[-1][-1] + _chip_width(labels[-1]) / 2,
        log_centres[-1] + _LOG_SCALE * _chip_width(steps[-1].token) / 2,
    )
    loop = _start(len(steps) + 1)
    sentence = escape(" ".join(steps[-1].canvas))
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{2 * half_width:.0f}" height="{_HEIGHT}" '
        f'viewBox="{-half_width:.0f} 0 {2 * half_width:.0f} {_HEIGHT}">'
    )
    return "\n".join(
        [
            opening,
            f"<title>{sentence}: written by insertion</title>",
            _STYLE % loop,
            _moving("caret", _caret_frames(labels, steps_by_word, centres), _CARET, loop=loop),
            *_moving_words(labels, steps_by_word, centres, loop=loop),
            *_moving_log(steps, log_centres, loop=loop),
            "</svg>\n",
        ]
    )


def _moving_words(
    labels: Sequence[str], steps_by_word: Sequence[int], centres: Sequence[Sequence[float]], *, loop: float
) -> Iterator[str]:
    for index, (label, step) in enumerate(zip(labels, steps_by_word, strict=True)):
        path = [canvas[index] for canvas in centres]
        frames = _word_frames(path, step) if step else _edge_frames(path)
        chip = _chip(label, fill=_tint(step, len(labels) - 2) if step else _EDGE_FILL)
        gap = _gap_dot(label) if index < len(labels) - 1 else ""
        yield _moving(f"word{index}", frames, chip + gap, loop=loop)


def _moving_log(steps: Sequence[Step], centres: Sequence[float], *, loop: float) -> Iterator[str]:
    for number, (step, x) in enumerate(zip(steps, centres, strict=True), start=1):
        entry = _log_entry(step.token, number, fill=_tint(number, len(steps)))
        yield _moving(f"step{number}", _log_frames(x, number), entry, loop=loop)


def _start(step: int) -> float:
    return _HOLD + _CLEAR + (step - 1) * _BEAT


def _chip_width(label: str) -> float:
    return len(label) * _CHARACTER + 2 * _PADDING


def _centres(labels: Sequence[str], visible: Sequence[bool]) -> list[float]:
    """The x of each label's centre. Visible labels form a row centred on 0; hidden ones take no room."""
    centres, edge = [], 0.0
    for label, is_visible in zip(labels, visible, strict=True):
        centres.append(edge + _chip_width(label) / 2)
        if is_visible:
            edge += _chip_width(label) + _GAP
    return [centre - (edge - _GAP) / 2 for centre in centres]


def _log_centres(steps: Sequence[Step]) -> list[float]:
    centres, edge = [], 0.0
    for step in steps:
        width = _LOG_SCALE * _chip_width(step.token)
        centres.append(edge + width / 2)
        edge += width + _LOG_GAP
    # The first entry's number hangs out on the left, half a gap wide.
    return [centre - (edge - _LOG_GAP) / 2 + _LOG_GAP / 4 for centre in centres]


def _edge_frames(path: Sequence[float]) -> list[_Frame]:
    """Frames of a boundary, which never fades. path: its x after each step, from step 0."""
    cleared = [_Frame(0, path[-1]), _Frame(_HOLD + _CLEAR / 2, path[-1]), _Frame(_HOLD + _CLEAR, path[0])]
    return cleared + _moving_aside(path, since=1)


def _word_frames(path: Sequence[float], step: int) -> list[_Frame]:
    """Frames of a word: it fades with the old sentence, drops into its gap, then moves aside for others."""
    entry, start = path[step], _start(step)
    return [
        _Frame(0, path[-1]),
        _Frame(_HOLD, path[-1]),
        _Frame(_HOLD + _CLEAR / 2, path[-1], opacity=0),
        _Frame(start + _POINT * _BEAT, entry, y=-_DROP, opacity=0),
        _Frame(start + _OPEN * _BEAT, entry, y=-_DROP),
        _Frame(start + _LAND * _BEAT, entry),
        *_moving_aside(path, since=step + 1),
    ]


def _moving_aside(path: Sequence[float], *, since: int) -> list[_Frame]:
    frames = []
    for step in range(since, len(path)):
        frames.append(_Frame(_start(step) + _POINT * _BEAT, path[step - 1]))
        frames.append(_Frame(_start(step) + _OPEN * _BEAT, path[step]))
    return [*frames, _Frame(_start(len(path)), path[-1])]


def _caret_frames(
    labels: Sequence[str], steps_by_word: Sequence[int], centres: Sequence[Sequence[float]]
) -> list[_Frame]:
    """Frames of the caret: it appears below the gap of each step and stays while the gap opens."""
    frames = [_Frame(0, 0, opacity=0)]
    for number in range(1, len(centres)):
        index = steps_by_word.index(number)
        left = max(other for other in range(index) if steps_by_word[other] < number)
        closed = centres[number - 1][left] + (_chip_width(labels[left]) + _GAP) / 2
        opened = centres[number][index]
        start = _start(number)
        frames += [
            _Frame(start, closed, opacity=0),
            _Frame(start + _POINT * _BEAT / 2, closed),
            _Frame(start + _POINT * _BEAT, closed),
            _Frame(start + _OPEN * _BEAT, opened),
            _Frame(start + _LAND * _BEAT, opened, opacity=0),
        ]
    return frames


def _log_frames(x: float, number: int) -> list[_Frame]:
    """Frames of an entry of the log: it is pale until its word has landed."""
    start = _start(number)
    return [
        _Frame(0, x),
        _Frame(_HOLD, x),
        _Frame(_HOLD + _CLEAR / 2, x, opacity=_NOT_YET),
        _Frame(start + _OPEN * _BEAT, x, opacity=_NOT_YET),
        _Frame(start + _LAND * _BEAT, x),
    ]


def _moving(name: str, frames: Sequence[_Frame], content: str, *, loop: float) -> str:
    """Content with its own animation. A viewer without CSS animations shows the first frame."""
    rules = "".join(
        f"{100 * frame.time / loop:.2f}%{{"
        f"transform:translate({frame.x:.1f}px,{frame.y}px);opacity:{frame.opacity}}}"
        for frame in frames
    )
    return (
        f'<g transform="translate({frames[0].x:.1f},{frames[0].y})" opacity="{frames[0].opacity}" '
        f'style="animation-name:{name}"><style>@keyframes {name}{{{rules}}}</style>{content}</g>'
    )


def _chip(label: str, *, fill: str) -> str:
    width = _chip_width(label)
    return (
        f'<g transform="translate(0,{_ROW})">'
        f'<rect x="{-width / 2}" y="{-_CHIP_HEIGHT / 2}" width="{width}" height="{_CHIP_HEIGHT}" rx="9" '
        f'fill="{fill}"/><text>{escape(label)}</text></g>'
    )


def _gap_dot(label: str) -> str:
    return f'<circle cx="{(_chip_width(label) + _GAP) / 2}" cy="{_ROW}" r="2.5"/>'


def _log_entry(label: str, number: int, *, fill: str) -> str:
    left = _chip_width(label) / 2 + _PADDING
    chip = _chip(label, fill=fill)
    return (
        f'<g transform="translate(0,{_LOG_ROW - _LOG_SCALE * _ROW}) scale({_LOG_SCALE})">{chip}'
        f'<text x="{-left}" y="{_ROW}" class="quiet">{number}</text></g>'
    )


def _tint(step: int, count: int) -> str:
    """The colour of a step, between the first tint, the middle one and the last."""
    along = 2 * (step - 1) / max(count - 1, 1)
    low, high = _TINTS[:2] if along < 1 else _TINTS[1:]
    share = along if along < 1 else along - 1
    mixed = [round(start + (end - start) * share) for start, end in zip(low, high, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)
