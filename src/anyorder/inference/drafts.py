"""The part of a trained model's face that edits drafts, from text to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast, overload

from anyorder import config
from anyorder.errors import UserError
from anyorder.inference.draft_text import DraftText, SharedRules, draft_text
from anyorder.inference.edited import Edited
from anyorder.inference.editing import EditRequest
from anyorder.inference.generation import Source, is_one_source
from anyorder.inference.loaded_model import LoadedModel

# A draft, or the keys of a `DraftText`.
DraftInput = str | Mapping[str, Any] | DraftText


class DraftEditor:
    """What a `Generator` does with drafts."""

    _model: LoadedModel

    def settings(self, **options: Any) -> config.Decode:  # noqa: ANN401
        """The recipe's [decode] with some keys changed and checked; None leaves a key as it is."""
        return self._model.settings(**options)

    @overload
    def edit(
        self,
        drafts: DraftInput,
        sources: Source | None = None,
        *,
        keep: str | Sequence[str] = (),
        must: str | Sequence[str] = (),
        forbid: str | Sequence[str] = (),
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Edited: ...

    @overload
    def edit(
        self,
        drafts: Sequence[DraftInput],
        sources: Sequence[Source] | None = None,
        *,
        keep: str | Sequence[str] = (),
        must: str | Sequence[str] = (),
        forbid: str | Sequence[str] = (),
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[Edited]: ...

    def edit(
        self,
        drafts: DraftInput | Sequence[DraftInput],
        sources: Source | Sequence[Source] | None = None,
        *,
        keep: str | Sequence[str] = (),
        must: str | Sequence[str] = (),
        forbid: str | Sequence[str] = (),
        names: Sequence[str] | None = None,
        **options: Any,
    ) -> Edited | list[Edited]:
        """Change drafts: words are inserted, substituted and deleted; the others stay byte for byte.

        drafts: one draft or a list of them. A draft is text, or a dict with the keys of `DraftText`, such as
        {"draft": "a dog run", "keep": ["dog"], "must": ["runs"], "forbid": ["cat"]}.
        sources: for a model that reads a source beside the draft, as many as there are drafts.
        keep: parts of the drafts that stay as they are, wherever they stand.
        must, forbid: words that must or must not appear in all edited texts.
        names: what error messages call each draft; by default "draft 1" and so on.
        options: keys of the recipe's [decode], such as cautious=0.5.

        Returns an `Edited` for one draft, or a list of them: the text and its edits, each with its place in
        the draft and its probability. Only models of model.kind = "editor" edit.

        >>> model = anyorder.load("runs/edit-code-reviews")  # doctest: +SKIP
        >>> model.edit("int x = y ;", keep="x").text  # doctest: +SKIP
        """
        if _is_one_draft(drafts):
            one = None if sources is None else [cast(Source, sources)]
            rules: dict[str, Any] = {"keep": keep, "must": must, "forbid": forbid}
            return self.edit([drafts], one, names=names, **rules, **options)[0]
        if is_one_source(sources):
            raise UserError("sources: one source given for a list of drafts; give a list of sources")
        edited: list[Edited] = []
        found = self.edit_or_refuse(
            cast(Sequence[DraftInput], drafts),
            cast("Sequence[Source] | None", sources),
            keep=keep,
            must=must,
            forbid=forbid,
            names=names,
            **options,
        )
        for answer in found:
            if isinstance(answer, UserError):
                raise answer
            edited.append(answer)
        return edited

    def edit_or_refuse(
        self,
        drafts: Sequence[DraftInput],
        sources: Sequence[Source] | None = None,
        *,
        keep: str | Sequence[str] = (),
        must: str | Sequence[str] = (),
        forbid: str | Sequence[str] = (),
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[Edited | UserError]:
        """Edit every draft that can be edited; the others get the error that says why not.

        The arguments are those of `edit`, in lists. An answer does not depend on the other drafts.

        >>> model.edit_or_refuse(["int x = y ;", "return x ;"])  # doctest: +SKIP
        """
        settings = self.settings(**options)
        if sources is not None and len(sources) != len(drafts):
            raise UserError(f"{len(sources)} sources but {len(drafts)} drafts: they go in pairs")
        shared = SharedRules.of(keep=keep, must=must, forbid=forbid)
        shared.check([_draft_of(draft) for draft in drafts])
        where = names or [f"draft {number}" for number in range(1, len(drafts) + 1)]
        results: dict[int, Edited | UserError] = {}
        requests: dict[int, EditRequest] = {}
        for number, (draft, name) in enumerate(zip(drafts, where, strict=True)):
            try:
                text = draft_text(draft, where=name, shared=shared)
                requests[number] = EditRequest(name, None if sources is None else sources[number], text)
            except UserError as error:
                results[number] = error
        answers = self._model.edit(list(requests.values()), settings=settings)
        results.update(zip(requests, answers, strict=True))
        return [results[number] for number in range(len(drafts))]


def _is_one_draft(drafts: object) -> TypeGuard[DraftInput]:
    return isinstance(drafts, str | Mapping | DraftText)


def _draft_of(draft: DraftInput) -> str:
    """The draft's text, before it is checked."""
    if isinstance(draft, DraftText):
        return draft.draft
    return draft if isinstance(draft, str) else str(draft.get("draft", ""))
