"""What the hypotheses of a beam have done about their constraints so far.

A *required item* is a word or phrase that must appear. It may be written in several *ways*, each a sequence
of tokens. `constraints.ItemGraph` holds them as a graph, in which an item moves from node to node. Where a
node *rests*, other words may be written before the item goes on to its right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.decoding.beam import Extension, Parents, padded_canvas, trimmed_canvas
from anyorder.decoding.constraints import CLOSED, FINISHED, Constraints
from anyorder.insertion import BOUNDARIES
from anyorder.text.tokenizer import PAD

# S sentences under way, K hypotheses of each, B of them to go on with, n tokens on the canvas,
# G = n - 1 gaps, I items of a sentence, A ways to go on with an item

NO_BLANK = -1

# Who asked for a token; a required item has its number.
FREE = -1  # no constraint: the model chose it
TEMPLATE = -2
UNDECIDED = -3  # an item under way that is not yet known, because several begin alike


@dataclass(frozen=True)
class AllowedSteps:
    """Where each hypothesis may write next, see `allowed.allowed_steps`."""

    blank: Tensor  # (S, K, G), the blank that each gap belongs to, or CLOSED
    forced: Tensor  # (S, K), bool: a template or an item under way prescribes the next token and its gap
    forced_gap: Tensor  # (S, K, G), bool: the gap that a prescribed token goes into
    whole: Tensor  # (S, K, G), gaps for a free token that ends its word
    begun: Tensor  # (S, K, G), gaps for a free token that its word goes on after
    items: Tensor  # (S, K, I, G), gaps in which each item may begin or go on
    end: Tensor  # (S, K), bool: the sentence may end here
    lacking: Tensor  # (S, K), bool: required items are missing
    unfilled: Tensor | None  # (S, K, G), gaps of blanks with too few words; None if no blank counts words
    barred: Mapping[int, Tensor]  # by token, the gaps in which it would complete a forbidden word: (S, K, G)


@dataclass(frozen=True)
class ConstraintState:
    """How far each hypothesis is with its template and its required items."""

    constraints: Constraints
    sentences: Tensor  # (S,), which sentences of the batch these are
    node: Tensor  # (S, K, I), the node at which each item rests
    inside: Tensor  # (S, K, I), the node of an item that is being written, else FINISHED
    after: Tensor  # (S, K, I), the last token of the item's newest part; it goes on to the right of it
    home: Tensor  # (S, K), the blank that the newest part was put into
    owner: Tensor  # (S, K, n), who asked for each token: FREE, TEMPLATE, UNDECIDED or the number of an item
    right_blank: Tensor  # (S, K, n), the blank of the gap to the right of each token, or CLOSED
    counted: (
        Tensor | None
    )  # (S, K, n), the blank that each word counts for, or NO_BLANK; None: no blank counts
    padding: Tensor | None = None  # (S,), padding on each canvas, as in `Beam`; None for none

    @classmethod
    def start(cls, constraints: Constraints, *, hypotheses: int = 1) -> ConstraintState:
        """Empty canvases: nothing is written but the boundaries."""
        device, sentences = constraints.limits.device, len(constraints.limits)
        shape = (sentences, hypotheses, BOUNDARIES)
        right_blank = torch.full(shape, CLOSED, device=device)
        right_blank[..., 0] = constraints.before[:, None]
        node = constraints.items.first[:, None].expand(*shape[:2], -1)
        return cls(
            constraints=constraints,
            sentences=torch.arange(sentences, device=device),
            node=node,
            inside=torch.full_like(node, FINISHED),
            after=torch.zeros_like(node),  # `<s>`
            home=torch.zeros(shape[:2], dtype=torch.long, device=device),
            owner=torch.full(shape, FREE, device=device),
            right_blank=right_blank,
            counted=torch.full(shape, NO_BLANK, device=device) if constraints.any_counted else None,
        )

    def keep(self, sentences: Tensor) -> ConstraintState:
        """Keep some of the sentences; sentences: (S',), indices, rising."""
        if len(sentences) == len(self.sentences):
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        kept: dict[str, Any] = {
            name: value[sentences] if isinstance(value, Tensor) else value for name, value in values.items()
        }
        return ConstraintState(**kept)

    def join(self, other: ConstraintState) -> ConstraintState:
        """Put the sentences of another state behind these; all are numbered anew."""
        constraints = self.constraints.join(self.sentences, other.constraints, other.sentences)
        longest = max(self.owner.shape[2], other.owner.shape[2])
        widest = max(self.owner.shape[1], other.owner.shape[1])
        first, parts = 0, []
        for one in (self, other):
            rows = slice(first, first + len(one.sentences))
            parts.append(one._under(constraints, rows)._widened(widest)._padded(longest - one.owner.shape[2]))
            first = rows.stop
        values: dict[str, Any] = {
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(self)
            if field.name not in ("constraints", "sentences", "counted")
        }
        counted = [part.counted for part in parts if part.counted is not None]
        return ConstraintState(
            constraints=constraints,
            sentences=torch.arange(first, device=self.sentences.device),
            counted=torch.cat(counted) if counted else None,
            **values,
        )

    def _under(self, constraints: Constraints, rows: slice) -> ConstraintState:
        """The same state in a larger batch, where these are some rows and nodes have new numbers."""
        items = constraints.items.first.shape[1]
        own = self.constraints.items.first[self.sentences]  # (S, I), the first node is that of the first item
        shift = constraints.items.first[rows].amax(dim=1) - own.amax(dim=1) if items and own.shape[1] else 0

        def renumbered(node: Tensor) -> Tensor:
            moved = torch.where(node != FINISHED, node + torch.as_tensor(shift).view(-1, 1, 1), FINISHED)
            return functional.pad(moved, (0, items - node.shape[2]), value=FINISHED)

        counted = self.counted
        if constraints.any_counted and counted is None:
            counted = torch.full_like(self.owner, NO_BLANK)
        return replace(
            self,
            node=renumbered(self.node),
            inside=renumbered(self.inside),
            after=functional.pad(self.after, (0, items - self.after.shape[2])),
            counted=counted if constraints.any_counted else None,
        )

    def _widened(self, hypotheses: int) -> ConstraintState:
        missing = hypotheses - self.owner.shape[1]
        if not missing:
            return self
        names = ("node", "inside", "after", "home", "owner", "right_blank", "counted")
        by_hypothesis = {name: getattr(self, name) for name in names}
        widened: dict[str, Any] = {
            name: torch.cat([values, values[:, :1].expand(-1, missing, *values.shape[2:])], dim=1)
            for name, values in by_hypothesis.items()
            if values is not None
        }
        return replace(self, **widened)

    def _padded(self, more: int) -> ConstraintState:
        known = torch.zeros_like(self.sentences) if self.padding is None else self.padding
        if not more:
            return replace(self, padding=known)
        return replace(
            self,
            after=torch.where(self.after >= BOUNDARIES, self.after + more, self.after),
            owner=padded_canvas(self.owner, more, value=FREE),
            right_blank=padded_canvas(self.right_blank, more, value=CLOSED),
            counted=None if self.counted is None else padded_canvas(self.counted, more, value=NO_BLANK),
            padding=known + more,
        )

    def trimmed(self, columns: int) -> ConstraintState:
        """Remove padding that all sentences have. columns: how much."""
        if self.padding is None:
            return self
        left = self.padding - columns
        return replace(
            self,
            after=torch.where(self.after >= BOUNDARIES, self.after - columns, self.after),
            owner=trimmed_canvas(self.owner, columns),
            right_blank=trimmed_canvas(self.right_blank, columns),
            counted=None if self.counted is None else trimmed_canvas(self.counted, columns),
            padding=left if bool(left.any()) else None,
        )

    # --- the template ---

    def given(self, newest: int) -> Tensor | None:
        """Which of the newest tokens a template gave, (S · K, newest), bool; None without templates."""
        if not self.constraints.template.shape[1]:
            return None
        return (self.owner[..., -newest:] == TEMPLATE).flatten(0, 1)

    @cached_property
    def template_tokens(self) -> Tensor:
        """Number of template tokens of each sentence, (S,)."""
        return self.constraints.template_length[self.sentences]

    @cached_property
    def in_template(self) -> Tensor:
        """Whether the template prescribes the next token, (S,)."""
        return self.written < self.template_tokens

    @property
    def written(self) -> Tensor | int:
        """Number of tokens written in each sentence, (S,), or one number if it is the same for all."""
        written = self.owner.shape[2] - BOUNDARIES
        return written if self.padding is None else written - self.padding

    @cached_property
    def any_in_template(self) -> bool:
        """Whether a template prescribes the next token of some sentence."""
        return self.constraints.template.shape[1] > 0 and bool(self.in_template.any())

    def _template_index(self) -> Tensor | int:
        """Index of the next template token; the last one where the template is written."""
        last = self.constraints.template.shape[1] - 1
        written = self.written
        return written.clamp(max=last) if isinstance(written, Tensor) else min(written, last)

    # --- required items ---

    @cached_property
    def in_item(self) -> Tensor:
        """Whether an item has begun that must go on at once, (S, K)."""
        return (self.inside != FINISHED).any(dim=2)

    @cached_property
    def at(self) -> Tensor:
        """Nodes that items may go on from, (S, K, I): only those under way, if there are any; else all."""
        return torch.where(self.in_item[..., None], self.inside, self.node)

    @cached_property
    def next_tokens(self) -> Tensor:
        """Tokens that each item may go on with, (S, K, I, A)."""
        return self.constraints.items.token[self.at]

    @cached_property
    def required_left(self) -> Tensor:
        """Number of tokens of items still to be written, at most, (S, K)."""
        at = torch.where(self.inside != FINISHED, self.inside, self.node)
        return self.constraints.items.tokens_left[at].sum(dim=2)

    def required_next(self) -> tuple[Tensor, Tensor]:
        """Next tokens of the template, of the items under way, or of the missing items.

        Returns ids, (S, K, I · A) or (S, K, 1), and whether each counts.
        """
        words = self.next_tokens.flatten(2)
        counts = (self.at != FINISHED)[..., None].expand_as(self.next_tokens).flatten(2)
        if not self.any_in_template:
            return words, counts
        if words.shape[2] == 0:
            words, counts = words.new_full((*words.shape[:2], 1), PAD), counts.new_zeros(*words.shape[:2], 1)
        token = self.constraints.template[self.sentences, self._template_index()][:, None, None]
        only_first = torch.arange(words.shape[2], device=words.device) == 0
        in_template = self.in_template[:, None, None]
        return torch.where(in_template, token, words), torch.where(in_template, only_first, counts)

    # --- one step ---

    def grow(self, allowed: AllowedSteps, extension: Extension) -> ConstraintState:
        """Follow the hypotheses that go on. allowed: before the step."""
        parents = Parents(extension.parent, among=self.home.shape[1])
        inherited = parents.select
        step = self._item_step(allowed, extension, parents)

        def append(values: Tensor, newest: Tensor) -> Tensor:
            return torch.cat([inherited(values), newest[..., None]], dim=2)

        owner = append(self.owner, torch.where(step.goes_on.any(dim=2), UNDECIDED, FREE))
        if len(numbers := torch.arange(step.at.shape[2], device=step.at.device)):
            number = (step.owns * numbers).sum(dim=2)
            owner = torch.where(step.part_ends[..., None] & (owner == UNDECIDED), number[..., None], owner)

        # A part counts for the blank that it began in. While it is open which item it belongs to, a gap is
        # closed if it is closed for one of them.
        blank = inherited(allowed.blank).gather(2, extension.gap[..., None]).squeeze(2)
        home = torch.where(inherited(self.in_item), inherited(self.home), blank)
        closed = ~step.part_ends & (step.goes_on & ~step.opens).any(dim=2)
        right = home.masked_fill(closed, CLOSED)
        counted = None if self.counted is None else append(self.counted, home)
        if self.any_in_template:
            in_template = self.in_template[:, None]
            owner[..., -1] = torch.where(in_template, TEMPLATE, owner[..., -1])
            right_of_template = self.constraints.template_right[self.sentences, self._template_index()]
            right = torch.where(in_template, right_of_template[:, None], right)
            if counted is not None:
                counted[..., -1] = torch.where(in_template, NO_BLANK, home)
        newest = self.owner.shape[2]
        return ConstraintState(
            constraints=self.constraints,
            sentences=self.sentences,
            node=torch.where(step.owns, step.successor, inherited(self.node)),
            inside=torch.where(step.goes_on & ~step.part_ends[..., None], step.successor, FINISHED),
            after=torch.where(step.owns, newest, inherited(self.after)),
            home=home,
            owner=owner,
            right_blank=append(self.right_blank, right),
            counted=counted,
            padding=self.padding,
        )

    def _item_step(self, allowed: AllowedSteps, extension: Extension, parents: Parents) -> _ItemStep:
        """Find the items that each new word belongs to: those under way, else those that may begin here."""
        graph = self.constraints.items
        at, in_item = parents.select(self.at), parents.select(self.in_item)
        same = graph.token[at] == extension.word[..., None, None]  # (S, B, I, A)
        in_gap = extension.gap[..., None, None].expand(-1, -1, at.shape[2], -1)
        may_begin = parents.select(allowed.items).gather(3, in_gap).squeeze(3)  # (S, B, I)
        goes_on = same.any(dim=3) & (at != FINISHED) & (in_item[..., None] | may_begin)
        if self.any_in_template:
            goes_on &= ~self.in_template[:, None, None]
        # At most one way has this word; where an item has fewer ways, its first one is repeated.
        successor = (graph.successor[at] * same).amax(dim=3)  # (S, B, I)
        # The first item that comes to a rest gets the part; the others stay where they were.
        rests = goes_on & graph.rests[successor]
        return _ItemStep(
            at=at,
            goes_on=goes_on,
            successor=successor,
            opens=(graph.opens[at] & same).any(dim=3),
            owns=rests & (rests.cumsum(dim=2) == 1),
            part_ends=rests.any(dim=2),
        )


@dataclass(frozen=True)
class _ItemStep:
    """What one more token does to the items of its hypothesis. All but part_ends: (S, B, I)."""

    at: Tensor  # the node of each item before the step
    goes_on: Tensor  # bool: the token may belong to this item
    successor: Tensor  # the node after the step
    opens: Tensor  # bool: more may be written to the right of the token
    owns: Tensor  # bool: the part that ends with this token belongs to this item
    part_ends: Tensor  # (S, B), bool: an item comes to a rest
