"""Decoding around what is given, in tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from conftest import FIRST_WORD, Steps, next_step, random_sources, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder import config
from anyorder.decoding.allowed import allowed_steps, items_fit
from anyorder.decoding.beam import Beam, TokenHypothesis
from anyorder.decoding.beam_search import search_two_step
from anyorder.decoding.constrained_scores import ConstrainedStep
from anyorder.decoding.constraint_state import FREE, TEMPLATE, ConstraintState
from anyorder.decoding.constraints import CLOSED, Blank, Canvas, Constraints, ForbiddenWord, Way
from anyorder.decoding.decode import decode
from anyorder.decoding.step_scorer import StepScorer, top_scores
from anyorder.insertion import NEG_INF
from anyorder.models.choices import StepChoices
from anyorder.models.indigo import Indigo

A, B, C = FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2
WORDS_END = torch.tensor([True] * (FIRST_WORD + 3))
PIECES = WORDS_END.clone()
PIECES[B] = False  # a word goes on after B: the only tokens that end one are A and C

ALL = 700  # hypotheses, more than there are
FULL_WIDTH = config.Decode(search="joint", beam=ALL, n_best=ALL, length_penalty=0)

firsts = pytest.mark.parametrize("first", ["word", "position"])


def completed(
    model: Indigo,
    canvas: Canvas,
    settings: config.Decode,
    *,
    most: int,
    ends_word: torch.Tensor = WORDS_END,
    line: int = 0,
) -> list[TokenHypothesis]:
    """Of one source, which the line's number decides."""
    source, mask = random_sources(lengths=[3], seed=line)
    limits = torch.tensor([most])
    constraints = Constraints.of([canvas], ends_word=ends_word, limits=limits)
    return decode(
        model, source, mask, settings=settings, limits=limits, lines=[line], constraints=constraints
    )[0]


# --- by brute force, for templates: a state is what stands in each blank ---


@dataclass(frozen=True)
class Template:
    """Given tokens, and the blanks between them and around them: None where nothing may be written."""

    tokens: tuple[int, ...]
    blanks: tuple[Blank | None, ...]  # one more than tokens

    @property
    def canvas(self) -> Canvas:
        numbers = [CLOSED if blank is None else 0 for blank in self.blanks]
        opened = [index for index, blank in enumerate(self.blanks) if blank is not None]
        for number, index in enumerate(opened):
            numbers[index] = number
        blanks = tuple(blank for blank in self.blanks if blank is not None)
        return Canvas(
            blanks=blanks, before=numbers[0], template=tuple(zip(self.tokens, numbers[1:], strict=True))
        )

    def gap(self, index: int, within: int, filled: tuple[tuple[int, ...], ...]) -> int:
        """The number of a gap on the whole canvas, from where it is in its blank."""
        return sum(len(fill) for fill in filled[:index]) + index + within


def words_of(fill: Sequence[int], ends_word: torch.Tensor) -> list[list[int]]:
    """Pieces that make up words; the last one may be unfinished."""
    words: list[list[int]] = [[]]
    for token in fill:
        words[-1].append(token)
        if ends_word[token]:
            words.append([])
    return words if words[-1] else words[:-1]


def is_kept(template: Template, filled: tuple[tuple[int, ...], ...], ends_word: torch.Tensor) -> bool:
    for index, (blank, fill) in enumerate(zip(template.blanks, filled, strict=True)):
        if blank is None:
            continue
        words = len(words_of(fill, ends_word))
        if words < blank.least or (blank.most is not None and words > blank.most):
            return False
        before_given = index < len(template.tokens)
        if fill and before_given and not ends_word[fill[-1]]:
            return False
    return True


def insertions(template: Template, filled: tuple[tuple[int, ...], ...]) -> Iterator[tuple[int, int, tuple]]:
    """Every word and gap, and what stands in the blanks then."""
    for index, blank in enumerate(template.blanks):
        if blank is None:
            continue
        fill = filled[index]
        for within, word in itertools.product(range(len(fill) + 1), (A, B, C)):
            grown = (*fill[:within], word, *fill[within:])
            yield word, template.gap(index, within, filled), (*filled[:index], grown, *filled[index + 1 :])


class BruteForce:
    """All ways to fill a template, with p of each: a choice is possible if it can still come out right."""

    def __init__(self, model: Indigo, template: Template, ends_word: torch.Tensor, *, most: int) -> None:
        source, mask = random_sources(lengths=[3], seed=0)
        self.model, self.memory = model, model.encode(source, mask)
        self.template, self.ends_word = template, ends_word
        self.free_tokens = most - len(template.tokens)
        self._reachable: dict[tuple, bool] = {}

    def kept(self, filled: tuple) -> bool:
        return is_kept(self.template, filled, self.ends_word)

    def reachable(self, filled: tuple) -> bool:
        written = sum(map(len, filled))
        if filled not in self._reachable:
            self._reachable[filled] = self.kept(filled) or (
                written < self.free_tokens
                and any(self.reachable(grown) for _, _, grown in insertions(self.template, filled))
            )
        return self._reachable[filled]

    def paths(self) -> Iterator[tuple[Steps, float, bool]]:
        """Steps, log p, and whether it ended rather than being cut off."""
        given = tuple((token, number) for number, token in enumerate(self.template.tokens))
        yield from self._paths(given, tuple(() for _ in self.template.blanks), 0.0)

    def _paths(self, steps: Steps, filled: tuple, log_prob: float) -> Iterator[tuple[Steps, float, bool]]:
        if sum(map(len, filled)) == self.free_tokens:
            scores = self._scores(steps, filled)
            if scores.get(None, -math.inf) > -math.inf:
                yield steps, log_prob + scores[None], True
            rest = 1 - math.exp(scores[None])
            if rest > 1e-12:
                yield steps, log_prob, False
            return
        scores = self._scores(steps, filled)
        if None in scores:
            yield steps, log_prob + scores[None], True
        for word, gap, grown in insertions(self.template, filled):
            if (word, gap) in scores:
                yield from self._paths((*steps, (word, gap)), grown, log_prob + scores[word, gap])

    def _scores(self, steps: Steps, filled: tuple) -> dict:
        """log p of all possible choices, the first one's and the second one's both among the possible."""
        following = next_step(self.model, self.memory, steps)
        at_limit = sum(map(len, filled)) == self.free_tokens
        possible = [
            (word, gap)
            for word, gap, grown in insertions(self.template, filled)
            if not at_limit and self.reachable(grown)
        ]
        position_first = self.model.position_first
        likeliest = (following.gap if position_first else following.word).max()
        only = self._unfilled(filled) if following.end >= float(likeliest) else set()
        if position_first and any(gap in only for _, gap in possible):
            possible = [(word, gap) for word, gap in possible if gap in only]
        first_of = (lambda pair: pair[1]) if position_first else (lambda pair: pair[0])
        firsts = {}
        for word, gap in possible:
            table = following.gap if position_first else following.word
            firsts[first_of((word, gap))] = float(table[word - FIRST_WORD, gap])
        if self.kept(filled):
            firsts[None] = following.end
        if (
            at_limit
        ):  # the beam may look beyond, so what is impossible there is not known: only the end counts
            return {None: following.end}
        total = _log_sum(firsts.values())
        scores = {None: firsts[None] - total} if None in firsts else {}
        for first in firsts.keys() - {None}:
            pairs = [pair for pair in possible if first_of(pair) == first]
            if not position_first and any(gap in only for _, gap in pairs):
                pairs = [(word, gap) for word, gap in pairs if gap in only]
            table = following.word if position_first else following.gap
            seconds = {pair: float(table[pair[0] - FIRST_WORD, pair[1]]) for pair in pairs}
            within = _log_sum(seconds.values())
            for pair, score in seconds.items():
                scores[pair] = firsts[first] - total + score - within
        return scores

    def _unfilled(self, filled: tuple) -> set[int]:
        """Gaps of blanks that have too few words."""
        return {
            self.template.gap(index, within, filled)
            for index, (blank, fill) in enumerate(zip(self.template.blanks, filled, strict=True))
            if blank is not None and len(words_of(fill, self.ends_word)) < blank.least
            for within in range(len(fill) + 1)
        }


def _log_sum(values: Iterable[float]) -> float:
    return math.log(sum(math.exp(value) for value in values))


TEMPLATES = {
    "a prefix": Template((A, B), (None, None, Blank())),
    "a suffix": Template((C,), (Blank(), None)),
    "both": Template((A, C), (None, Blank(), None)),
    "a draft": Template((A, C), (Blank(), Blank(), Blank())),
    "at least two words": Template((A, C), (None, Blank(least=2), None)),
    "at most one word": Template((A,), (Blank(most=1), Blank(least=1, most=1))),
    "a word in each": Template((A,), (Blank(least=1), Blank(least=1))),
}


@firsts
@pytest.mark.parametrize("ends_word", [WORDS_END, PIECES], ids=["words", "pieces"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_full_beam_finds_all_completions_with_their_probabilities(
    name: str, ends_word: torch.Tensor, first: str
) -> None:
    """Below the longest length: there, what may come next is never asked."""
    template, model = TEMPLATES[name], tiny_model(first=first)
    if not ends_word.all() and name == "a prefix":
        template = Template((B, A), template.blanks)  # the last piece of a given word ends it
    opened = sum(blank is not None for blank in template.blanks)
    most = len(template.tokens) + (3 if opened == 1 or name == "a word in each" else 2)
    expected = {
        steps: log_prob
        for steps, log_prob, ended in BruteForce(model, template, ends_word, most=most).paths()
        if ended and len(steps) < most
    }
    found = {
        steps_of(one): one.log_prob
        for one in completed(model, template.canvas, FULL_WIDTH, most=most, ends_word=ends_word)
        if one.finished and len(one.tokens) < most
    }
    assert found.keys() == expected.keys()
    assert len(found) > 1
    for steps, log_prob in expected.items():
        assert found[steps] == pytest.approx(log_prob, abs=1e-9)


def steps_of(hypothesis: TokenHypothesis) -> Steps:
    """The word and the gap of each step, from where tokens stand in the end."""
    written: list[int] = []
    steps = []
    for token, position in zip(hypothesis.tokens, hypothesis.positions, strict=True):
        steps.append((token, sum(other < position for other in written)))
        written.append(position)
    return tuple(steps)


# --- laws ---

blanks = st.builds(
    lambda least, more: Blank(least=least, most=None if more is None else least + more),
    st.integers(0, 2),
    st.none() | st.integers(0, 2),
)


@st.composite
def canvases(draw: st.DrawFn, *, words: int = 2, items: int = 2) -> Canvas:
    """Templates and items of whole words, with room for everything. words: of a template; both: most."""
    whole = st.sampled_from([(A,), (C,), (B, A), (B, C)])
    template: list[tuple[int, int]] = []
    bounds: list[Blank] = []
    before = 0
    bounds.append(draw(blanks))
    for word in draw(st.lists(whole, max_size=words)):
        template += [(token, CLOSED) for token in word]
        if draw(st.booleans()):
            bounds.append(draw(blanks))
            template[-1] = (template[-1][0], len(bounds) - 1)
    required = []
    for _ in range(draw(st.integers(0, items))):
        ways = []
        for words in draw(st.lists(st.lists(whole, min_size=1, max_size=2), min_size=1, max_size=2)):
            tokens = tuple(itertools.chain.from_iterable(words))
            ends = set(itertools.accumulate(map(len, words)))
            opens_inside = draw(st.booleans())
            opens = tuple(opens_inside and number in ends for number in range(1, len(tokens) + 1))
            ways.append(Way(tokens, opens, words=len(words)))
        required.append(tuple(ways))
    sizes = tuple(max(way.words for way in item) for item in required)
    rooms = tuple(9 if blank.most is None else blank.most for blank in bounds)
    if not items_fit(rooms, sizes):
        bounds = [Blank(least=blank.least) for blank in bounds]
    return Canvas(blanks=tuple(bounds), before=before, template=tuple(template), items=tuple(required))


@firsts
@settings(max_examples=12)
@given(canvas=canvases(words=1, items=0), seed=st.integers(0, 50))
def test_completions_are_as_likely_as_one(first: str, canvas: Canvas, seed: int) -> None:
    """p of all that ends and of all that is cut off adds up to one: nothing gets stuck, nothing is lost."""
    model = tiny_model(first=first, seed=seed, words=3)
    free = 2  # tokens: then there are fewer paths than the beam is wide
    given_tokens = canvas.least_tokens - sum(blank.least for blank in canvas.blanks)
    bounded = tuple(replace(blank, least=min(blank.least, free)) for blank in canvas.blanks[:1])
    canvas = replace(canvas, blanks=bounded + tuple(replace(blank, least=0) for blank in canvas.blanks[1:]))
    most = given_tokens + free
    wide = FULL_WIDTH.model_copy(update={"beam": 600, "n_best": 600})
    found = completed(model, canvas, wide, most=most, ends_word=PIECES)
    total = sum(math.exp(one.log_prob) for one in found if len(one.tokens) < most)
    # At the longest length a hypothesis counts as cut, unless its end is among the best: count each once.
    longest = {(one.tokens, one.positions): one for one in found if len(one.tokens) == most}
    for one in longest.values():
        end = 0.0
        if one.finished:
            end = one.gap_scores[-1] if first == "position" else one.word_scores[-1]
        total += math.exp(one.log_prob - end)
    assert total == pytest.approx(1.0, abs=1e-6)


def make_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on models would rather end, at every step."""
    patient = StepChoices.first_log_probs

    def impatient(choices: StepChoices) -> torch.Tensor:
        scores = patient(choices)
        scores[..., 0] += 20
        return scores.log_softmax(dim=-1)

    monkeypatch.setattr(StepChoices, "first_log_probs", impatient)


@firsts
@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_would_end_fills_what_is_left_and_nothing_else(
    first: str, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_impatient(monkeypatch)
    for seed in range(5):
        model = tiny_model(first=first, seed=seed, words=3)
        canvas = Template((A, C), (Blank(), Blank(least=2), Blank(least=1))).canvas
        best, *_ = completed(model, canvas, config.Decode(beam=beam, unknown=False), most=12)
        assert best.finished
        assert len(best.tokens) == canvas.least_tokens


SEARCHES = {
    "greedy": config.Decode(),
    "beam": config.Decode(beam=3, n_best=3),
    "joint": config.Decode(search="joint", beam=3, n_best=3),
    "sample": config.Decode(search="sample", n_best=3),
}


@pytest.mark.parametrize("search", SEARCHES)
@firsts
@settings(max_examples=15)
@given(canvas=canvases(), seed=st.integers(0, 50))
def test_every_search_keeps_to_every_canvas(search: str, first: str, canvas: Canvas, seed: int) -> None:
    model = tiny_model(first=first, seed=seed, words=3, marks_given=bool(seed % 2))
    most = canvas.least_tokens + 2
    found = completed(model, canvas, SEARCHES[search], most=most, ends_word=PIECES, line=seed)
    assert found
    for one in found:
        assert_keeps(one, canvas)


def assert_keeps(one: TokenHypothesis, canvas: Canvas) -> None:
    """By regular means: what stands between the given tokens, as lists."""
    template_positions = one.positions[: len(canvas.template)]
    assert one.tokens[: len(canvas.template)] == tuple(token for token, _ in canvas.template)
    assert list(template_positions) == sorted(template_positions)
    assert one.owners[: len(canvas.template)] == (TEMPLATE,) * len(canvas.template)
    for number, item in enumerate(canvas.items):
        steps = [step for step, owner in enumerate(one.owners) if owner == number]
        assert any(is_written(way, one, steps) for way in item)
    given_positions = [
        position for position, owner in zip(one.positions, one.owners, strict=True) if owner != FREE
    ]
    # Blanks: what stands in each, between template tokens.
    sentence = one.sentence
    given_set = set(given_positions)
    borders = [0, *template_positions, len(sentence) + 1]
    regions = [canvas.before, *(blank for _, blank in canvas.template)]
    words_by_blank = dict.fromkeys(range(len(canvas.blanks)), 0)
    for (left, right), blank in zip(itertools.pairwise(borders), regions, strict=True):
        inside = list(range(left + 1, right))
        if blank == CLOSED:
            assert not inside
            continue
        words = words_of([sentence[position - 1] for position in inside], PIECES)
        words_by_blank[blank] += len(words)
        for position in inside:  # no piece is glued onto a given word
            goes_on = not PIECES[sentence[position - 1]]
            if goes_on and position not in given_set and position < len(sentence):
                assert position + 1 not in given_set
    for number, blank in enumerate(canvas.blanks):
        assert words_by_blank[number] >= blank.least
        assert blank.most is None or words_by_blank[number] <= blank.most


def is_written(way: Way, one: TokenHypothesis, steps: Sequence[int]) -> bool:
    """Whether these steps wrote an item in this way, whole where it is closed."""
    positions = [one.positions[step] for step in steps]
    whole = all(
        after == before + 1 or (opens and after > before)
        for before, after, opens in zip(positions, positions[1:], way.opens, strict=False)
    )
    return tuple(one.tokens[step] for step in steps) == way.tokens and whole


@firsts
@pytest.mark.parametrize("search", SEARCHES)
def test_an_empty_canvas_changes_nothing(search: str, first: str) -> None:
    model = tiny_model(first=first)
    source, mask = random_sources(lengths=[3, 2, 4], seed=5)
    limits = torch.tensor([6, 5, 7])
    free = decode(model, source, mask, settings=SEARCHES[search], limits=limits)
    # Nor does it when others have something to keep to.
    for canvas in (Canvas(), TEMPLATES["both"].canvas):
        constraints = Constraints.of([Canvas(), canvas, Canvas()], ends_word=PIECES, limits=limits)
        found = decode(model, source, mask, settings=SEARCHES[search], limits=limits, constraints=constraints)
        for line in (0, 2):
            for one, other in zip(found[line], free[line], strict=True):
                assert (one.tokens, one.positions) == (other.tokens, other.positions)
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-12)


FORBIDDEN = (ForbiddenWord.of_token(A), ForbiddenWord(length=2, parts=((0, 1, B), (1, 2, C))))


@given(
    word=st.text(alphabet="ab", min_size=1, max_size=5),
    pieces=st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=6, unique=True),
    sentence=st.lists(st.integers(0, 5), max_size=6),
)
def test_a_token_completes_a_word_where_the_tokens_around_it_spell_the_rest(
    word: str, pieces: list[str], sentence: list[int]
) -> None:
    """Against all ways to cut the word, tried one by one in each gap."""
    parts = tuple(
        (start, start + len(piece), token)
        for token, piece in enumerate(pieces)
        for start in range(len(word))
        if word.startswith(piece, start)
    )
    sentence = [token for token in sentence if token < len(pieces)]

    def spells(tokens: list[int]) -> bool:
        return "".join(pieces[token] for token in tokens) == word

    slowly = {
        (gap, token)
        for gap in range(len(sentence) - 1)
        for token in range(len(pieces))
        for begin in range(gap + 2)
        for end in range(gap + 1, len(sentence) + 1)
        if end - begin > 0 and spells([*sentence[begin : gap + 1], token, *sentence[gap + 1 : end]])
    }
    assert set(ForbiddenWord(len(word), parts).completions(sentence)) == slowly


@firsts
@pytest.mark.parametrize("search", SEARCHES)
def test_forbidden_tokens_never_follow_each_other(search: str, first: str) -> None:
    for seed in range(10):
        model = tiny_model(first=first, seed=seed)
        canvas = Canvas(blanks=(Blank(least=3),), forbidden=FORBIDDEN)
        for one in completed(model, canvas, SEARCHES[search], most=5, ends_word=PIECES, line=seed):
            assert A not in one.sentence
            assert (B, C) not in itertools.pairwise(one.sentence)


def word(token: int) -> tuple[Way, ...]:
    return (Way((token,), (True,), words=1),)


def phrase(*tokens: int) -> tuple[Way, ...]:
    return (Way(tokens, (*[False] * (len(tokens) - 1), True), words=len(tokens)),)


@firsts
@pytest.mark.parametrize("search", ["greedy", "beam", "joint"])
def test_required_words_cost_what_the_model_makes_them(first: str, search: str) -> None:
    """What is paid is log p of the very same steps in a model that is free, gaps that are closed apart."""
    model = tiny_model(first=first)
    source, mask = random_sources(lengths=[3], seed=0)
    memory = model.encode(source, mask)
    # Below the longest length nothing else is ruled out.
    for one in completed(model, Canvas(items=(word(A), word(C))), SEARCHES[search], most=12):
        assert {A, C} <= set(one.tokens)
        log_prob, steps = 0.0, steps_of(one)
        for number, (token, gap) in enumerate(steps):
            following = next_step(model, memory, steps[:number])
            log_prob += float(following.word[token - FIRST_WORD, gap])
            log_prob += float(following.gap[token - FIRST_WORD, gap])
        log_prob += next_step(model, memory, steps).end if one.finished else 0.0
        assert one.log_prob == pytest.approx(log_prob, abs=1e-9)


@firsts
def test_a_wide_beam_finds_all_sentences_with_a_word_as_likely_as_they_are(first: str) -> None:
    """Among all that a free search finds, those that hold it; where room gets short, others are ruled out."""
    model = tiny_model(first=first)
    wide = FULL_WIDTH.model_copy(update={"beam": 400, "n_best": 400})
    free, required = (
        {
            steps_of(one): one.log_prob
            for one in completed(model, given, wide, most=most)
            if len(one.tokens) <= 2
        }
        for given, most in ((Canvas(), 3), (Canvas(items=(word(C),)), 4))
    )
    fitting = {steps: log_prob for steps, log_prob in free.items() if C in {token for token, _ in steps}}
    assert len(fitting) == 1 + 5 * 2  # one alone, and five pairs of three words, in two gaps
    assert required == pytest.approx(fitting, abs=1e-9)


@settings(max_examples=20)
@given(canvas=canvases(), seed=st.integers(0, 50), length=st.integers(0, 4))
def test_the_best_words_are_the_same_without_log_p_of_all_others(
    canvas: Canvas, seed: int, length: int
) -> None:
    model = tiny_model(seed=seed)
    source, mask = random_sources(lengths=[3], seed=seed)
    constraints = Constraints.of([canvas], ends_word=PIECES, limits=torch.tensor([canvas.least_tokens + 20]))
    beam = Beam.start(1, device=source.device)
    constraint_state = ConstraintState.start(constraints)
    decoder_state = model.start(model.encode(source, mask))
    newest = beam.words
    for _ in range(length + 1):
        constrained = ConstrainedStep(
            constraint_state,
            beam,
            allowed_steps(constraint_state, beam),
            model.word_head.first,
            position_first=False,
            unknown=True,
            bonus=2.0,
        )
        state = model.advance(decoder_state, newest.flatten(0, 1), beam.indices.flatten(0, 1))
        scorer = StepScorer(
            StepChoices(model, decoder_state, state, beam.indices.flatten(0, 1)),
            beam,
            constrained=constrained,
        )
        (fast, end_score), slow = scorer.top_first(3), top_scores(scorer.first_scores(), 3)
        if scorer.end_score is not None:
            assert end_score is not None
            assert torch.equal(end_score.is_best, scorer.end_score.is_best)
            torch.testing.assert_close(end_score.log_probs, scorer.end_score.log_probs)
        possible = slow.rank > NEG_INF
        assert torch.equal(fast.rank > NEG_INF, possible)
        torch.testing.assert_close(fast.rank[possible], slow.rank[possible])
        torch.testing.assert_close(fast.log_probs[possible], slow.log_probs[possible])
        assert torch.equal(fast.choices[possible], slow.choices[possible])
        step = search_two_step(scorer, 1)
        extension = step.extension
        if extension.log_prob[0, 0] == NEG_INF:
            break
        constraint_state = constraint_state.grow(constrained.allowed, extension)
        beam = beam.grow(extension)
        decoder_state.follow(extension.parent, torch.tensor([0]))
        newest = beam.words[..., -1:]


def test_phrases_that_begin_alike_come_in_the_order_that_the_model_likes() -> None:
    """Which of them is under way is left open until it shows."""
    orders = set()
    for seed in range(30):
        canvas = Canvas(items=(phrase(B, A), phrase(B, C)))
        (one,) = completed(
            tiny_model(seed=seed), canvas, config.Decode(), most=6, ends_word=PIECES, line=seed
        )
        assert_keeps(one, canvas)
        orders.add(one.tokens.index(A) < one.tokens.index(C))
    assert orders == {True, False}


@firsts
def test_a_phrase_stays_whole_beside_the_same_one_that_need_not(first: str) -> None:
    """Which of the two was begun shows only at its end: until then nothing comes in between."""
    open_one = (Way((A, A), (True, True), words=2),)
    for items, seed in itertools.product(((phrase(A, A), open_one), (open_one, phrase(A, A))), range(8)):
        canvas = Canvas(blanks=(Blank(least=6),), items=items)
        model = tiny_model(first=first, seed=seed)
        for one in completed(model, canvas, SEARCHES["beam"], most=8, ends_word=PIECES, line=seed):
            assert_keeps(one, canvas)


def test_parts_of_a_phrase_follow_each_other_with_words_between_them() -> None:
    apart = 0
    for seed in range(30):
        canvas = Canvas(items=((Way((A, C, A), (True, True, True), words=3),),))
        (one,) = completed(
            tiny_model(seed=seed),
            canvas,
            config.Decode(),
            most=9,
            line=seed,
        )
        assert_keeps(one, canvas)
        positions = [
            position for position, owner in zip(one.positions, one.owners, strict=True) if owner == 0
        ]
        assert positions == sorted(positions)
        apart += positions != list(range(positions[0], positions[0] + 3))
    assert apart


@given(
    rooms=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    sizes=st.lists(st.integers(1, 4), max_size=4).map(tuple),
)
def test_room_is_found_where_there_is_some(rooms: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    def fits(choice: tuple[int, ...]) -> bool:
        return all(
            sum(size for size, chosen in zip(sizes, choice, strict=True) if chosen == blank) <= room
            for blank, room in enumerate(rooms)
        )

    choices = itertools.product(range(len(rooms)), repeat=len(sizes))
    assert items_fit(rooms, sizes) == any(fits(choice) for choice in choices)
