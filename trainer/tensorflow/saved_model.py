"""A SavedModel of what was trained: a graph that predicts, with the values of a checkpoint.

    def predict():
        user = tf.placeholder(tf.int32, [None])
        x = tf.nn.embedding_lookup(tf.get_variable("users", [50_000, 32]), user, partition_strategy="div")
        return {"user": user}, {"score": tf.reduce_sum(x, 1)}

    export(predict, "/run/ratings", "/models/ratings/1")

Checkpoints have whole variables under their names, so this needs neither servers nor a master.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elasticjob.trainer.tensorflow.compat import tf, v1

Predict = Callable[[], tuple[Mapping[str, Any], Mapping[str, Any]]]
"""Makes a graph that predicts; returns its placeholders and what it computes, each by name."""


def export(predict: Predict, checkpoint: str | Path, into: str | Path) -> Path:
    """Write a SavedModel with the newest checkpoint of a folder; return its folder, `into`.

    Raises FileNotFoundError if there is no checkpoint, FileExistsError if there is something at `into`, and
    ValueError if the graph has variables that the checkpoint has not.
    """
    found, into = tf.train.latest_checkpoint(str(checkpoint)), Path(into)
    if not found:
        raise FileNotFoundError(f"there is no complete checkpoint in {checkpoint}: call Servers.save first")
    if into.exists():
        raise FileExistsError(
            f"{into} is there already: export to a new folder, such as one for each version"
        )
    with tf.Graph().as_default(), v1.Session() as session:
        inputs, outputs = predict()
        _check(v1.global_variables(), found)
        if variables := v1.global_variables():
            v1.train.Saver(variables).restore(session, found)
        signature = v1.saved_model.predict_signature_def(dict(inputs), dict(outputs))
        unfinished = into.with_name(f".{into.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        builder = v1.saved_model.Builder(str(unfinished))
        builder.add_meta_graph_and_variables(
            session,
            [v1.saved_model.tag_constants.SERVING],
            {v1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
            main_op=v1.tables_initializer(),
        )
        builder.save()
    return unfinished.rename(into)


def _check(variables: list[Any], checkpoint: str) -> None:
    """Raise ValueError if the checkpoint lacks one of the variables, or has another shape of it."""
    kept = dict(tf.train.list_variables(checkpoint))
    for variable in variables:
        name, shape = variable.op.name, variable.shape.as_list()
        if kept.get(name) != shape:
            there = kept.get(name, "absent")
            raise ValueError(
                f"variable {name} is {shape} in the graph that predicts and {there} in {checkpoint}: "
                "make its variables as the model does that was trained"
            )
