"""A store of rows on parameter servers that change while they train; each update counts once."""

from elasticjob.trainer.store.given import StoreError
from elasticjob.trainer.store.optimizers import SGD, Adagrad, Adam
from elasticjob.trainer.store.saved import read
from elasticjob.trainer.store.store import Batch, Store
from elasticjob.trainer.store.tables import Normal, Table, Uniform, Zeros

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Batch",
    "Normal",
    "Store",
    "StoreError",
    "Table",
    "Uniform",
    "Zeros",
    "read",
]
