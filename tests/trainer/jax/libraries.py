"""optax's optimizers and flax's TrainState with `Elastic`, beside plain JAX: the same numbers, to the bit.

    python tests/trainer/jax/libraries.py [adamw sgd …]      # all optimizers by default, two minutes

Each trains three times: in plain JAX, in an Elastic, and in one that ends within an epoch and goes on from
its checkpoint in another.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from elasticjob.trainer.jax import Dataset, Elastic

NAMES: Final = (
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan"),
    *("amsgrad", "fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam"),
    *("optimistic_gradient_descent", "radam", "rmsprop", "sgd", "sign_sgd", "sm3", "yogi"),
)
SIZE, BATCH, EPOCHS, STOP = 100, 24, 2, 4
random = np.random.default_rng(0)
X = random.normal(size=(SIZE, 5)).astype(np.float32)
Y = (X @ random.normal(size=(5, 3))).astype(np.float32)


class Net(nn.Module):  # type: ignore[misc]  # flax declares no types for it
    """A layer, a norm, and another layer."""

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        return nn.Dense(3)(nn.LayerNorm()(nn.relu(nn.Dense(7)(x))))


class Ends(Exception):
    """The script ends within an epoch."""


net = Net()
update = jax.jit(lambda state, gradients: state.apply_gradients(grads=gradients))


@jax.jit  # type: ignore[untyped-decorator]
@jax.value_and_grad  # type: ignore[untyped-decorator]
def gradient(params: Any, x: Any, y: Any) -> Any:
    """Return the loss of a batch."""
    return jnp.mean((net.apply({"params": params}, x) - y) ** 2)


def begun(optimizer: Any) -> Any:
    """Return the first state."""
    params = net.init(jax.random.key(0), X[:1])["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=optimizer)


def plain(optimizer: Any) -> Any:
    """Return what plain JAX trains."""
    state = begun(optimizer)
    for _ in range(EPOCHS):
        for at in range(0, SIZE, BATCH):
            _, gradients = gradient(state.params, X[at : at + BATCH], Y[at : at + BATCH])
            state = update(state, gradients)
    return state


def elastic(optimizer: Any, folder: str, stop: int = 0) -> Any:
    """Return what Elastic trains, up to a step."""
    data = Dataset(name="data", size=SIZE, epochs=EPOCHS)
    training = Elastic(begun(optimizer), data, batch=BATCH, checkpoint=folder, save_every=3)
    with suppress(Ends):
        for step in training.steps():
            with step:
                for records in step:
                    step.add(gradient(training.state.params, X[records], Y[records]))
                loss, gradients = step.mean()
                training.state = update(training.state, gradients)
                step.log(loss=loss)
            if step.number == stop:
                raise Ends
    return training.state


def bits(state: Any) -> list[tuple[str, bytes]]:
    """Return types and bytes of all numbers."""
    leaves = jax.tree.leaves((state.params, state.opt_state, state.step))
    return [(str(each.dtype), each.tobytes()) for each in map(np.asarray, leaves)]


def differing(names: list[str]) -> Iterator[str]:
    """Yield the optimizers whose numbers are not those of plain JAX."""
    for name in names:
        make = getattr(optax, name)
        needs = "learning_rate" in inspect.signature(make).parameters
        optimizer = make(learning_rate=0.01) if needs else make()
        wanted = bits(plain(optimizer))
        with tempfile.TemporaryDirectory() as folder:
            alone = bits(elastic(optimizer, f"{folder}/alone"))
            elastic(optimizer, f"{folder}/resumed", stop=STOP)
            resumed = bits(elastic(optimizer, f"{folder}/resumed"))
        print(f"{name:28} alone {alone == wanted}, resumed {resumed == wanted}", flush=True)
        if not alone == resumed == wanted:
            yield name


if __name__ == "__main__":
    wrong = list(differing(sys.argv[1:] or [*NAMES]))
    sys.exit(f"others than plain JAX: {', '.join(wrong)}" if wrong else 0)
