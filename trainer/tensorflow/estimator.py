"""A model function of an Estimator as a model for Servers, for those whose Estimator is gone.

    features, labels = {"user": (tf.int32, [None])}, (tf.float32, [None])
    model = from_model_fn(model_fn, params={"dim": 32}, features=features, labels=labels)
    with Servers(model, dataset) as servers:
        for records, step in servers.steps(batch=256):
            step(user=…, labels=…)

`model_fn(features, labels, mode, params)` returns an EstimatorSpec: ours, or what has `loss` and `train_op`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.trainer.tensorflow.compat import v1
from elasticjob.trainer.tensorflow.graph import Model, Step

LABELS: Final = "labels"

Column = tuple[Any, Sequence[int | None]]
"""Type and shape of a placeholder; None for a dimension of any size."""


class ModeKeys:
    """The modes of a model function; Servers trains."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True)
class EstimatorSpec:
    """The result of a model function, in place of tf.estimator.EstimatorSpec."""

    mode: str = ModeKeys.TRAIN
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    export_outputs: Any = None
    training_hooks: Sequence[Any] = ()
    training_chief_hooks: Sequence[Any] = ()
    scaffold: Any = None


def from_model_fn(
    model_fn: Callable[..., Any],
    params: Any = None,
    *,
    features: Mapping[str, Column],
    labels: Column | Mapping[str, Column] | None = None,
) -> Model:
    """Return a model for Servers. Its step takes the features by name, and `labels` or theirs by name.

    Raises TypeError, when the model is made, if the function asks for hooks: a loop of your own can do what
    they do, between two steps.
    """

    def model() -> Step:
        feed = {name: _placeholder(name, column) for name, column in features.items()}
        given: dict[str, Any] = dict(feed)
        truth: Any = None
        if isinstance(labels, Mapping):
            truth = {name: _placeholder(name, column) for name, column in labels.items()}
            feed |= truth
        elif labels is not None:
            truth = feed[LABELS] = _placeholder(LABELS, labels)
        return _step(_call(model_fn, given, truth, ModeKeys.TRAIN, params), feed)

    return model


def predict_of(
    model_fn: Callable[..., Any], params: Any = None, *, features: Mapping[str, Column]
) -> Callable[[], tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return what `export` takes: the predictions of a model function, of its features."""

    def predict() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        given = {name: _placeholder(name, column) for name, column in features.items()}
        spec = _call(model_fn, dict(given), None, ModeKeys.PREDICT, params)
        found = getattr(spec, "predictions", None)
        if found is None:
            raise TypeError(
                f"the model function returned {spec!r} for {ModeKeys.PREDICT}: it needs predictions"
            )
        return given, found if isinstance(found, Mapping) else {"output": found}

    return predict


def _call(model_fn: Callable[..., Any], features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Return what a model function returns, which takes as many of the arguments as it names."""
    accepted = inspect.signature(model_fn).parameters
    offered = {"labels": labels, "mode": mode, "params": params or {}, "config": None}
    return model_fn(features, **{name: value for name, value in offered.items() if name in accepted})


def _step(spec: Any, feed: Mapping[str, Any]) -> Step:
    if getattr(spec, "train_op", None) is None or getattr(spec, "loss", None) is None:
        raise TypeError(f"the model function returned {spec!r} for training: it needs loss and train_op")
    hooks = [
        *(getattr(spec, "training_hooks", None) or ()),
        *(getattr(spec, "training_chief_hooks", None) or ()),
    ]
    if hooks:
        raise TypeError(
            f"the model function asks for the hooks {', '.join(type(each).__name__ for each in hooks)}: "
            "do what they do in the loop over Servers.steps, and leave them out"
        )
    return Step(spec.train_op, feed, loss=spec.loss)


def _placeholder(name: str, column: Column) -> Any:
    dtype, shape = column
    return v1.placeholder(dtype, shape, name)
