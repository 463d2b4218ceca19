"""info: show what a trained model is."""

from __future__ import annotations

import json

from anyorder.cli.options import AS_JSON, RUN
from anyorder.cli.output import print_json, results, table


def info(run: RUN, as_json: bool = AS_JSON) -> None:
    """Show what a trained model is: size, order, data, scores.

    Example: `anyorder info runs/l2r`
    """
    import torch

    from anyorder.inference.model_folder import load_trained
    from anyorder.training.checkpoint import checkpoints

    trained = load_trained(run, device=torch.device("cpu"))
    recipe, shape = trained.recipe, trained.model.shape
    facts = {
        "run": str(run),
        "kind": recipe.model.kind,
        "order": recipe.order_label,
        "first": recipe.model.first,
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "vocabulary": shape.vocabulary,
        "target_vocabulary": shape.target_vocabulary,
        "features": shape.features,
        "model": recipe.model.model_dump(mode="json"),
        "data": recipe.data.model_dump(mode="json", exclude_none=True),
        "scores": trained.scores,
        "checkpoints": [checkpoint.step for checkpoint in checkpoints(run)],
    }
    if as_json:
        print_json(facts)
        return
    drawn = table("", "")
    drawn.columns[1].justify = "left"
    for name, value in facts.items():
        if isinstance(value, dict):
            shown = "  ".join(f"{key} {_short(inner)}" for key, inner in value.items())
        else:
            shown = f"{value:,}" if isinstance(value, int) else _short(value)
        drawn.add_row(name.replace("_", " "), shown)
    results.print(drawn)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
