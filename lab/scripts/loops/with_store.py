"""The store: each worker pushes the gradients of its batches."""

import os

import ml_dtypes
import numpy as np

from elasticjob.trainer.store import SGD, Store, Table, Zeros
from lab.scripts.loops.run import args, at, dataset, end, export, is_other, last_line, say

HALF = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, None: None}[args.half]
rank = int(os.environ["ELASTICJOB_INDEX"])
width = -1 if args.wrong else 1
tables = [Table("seen" if not is_other() else "others", width, SGD(1.0), Zeros())]
data = dataset(shard=2 * args.batch, batch=args.batch)
with Store(tables, data, save_every=args.seconds_between_saves) as store:
    say(begins=0, rank=rank)
    for number, batch in enumerate(store.batches(args.batch), start=1):
        at("before", number, rank)
        rows = np.asarray(batch.records)
        if args.half:
            rows = np.full(512, 1000 + number)
            batch.push({"seen": (rows, np.full((512, 1), -150.0, HALF))})
        else:
            batch.push({"seen": (rows, -np.ones((len(rows), 1)))})
        at("after", number, rank)
        at("behind", number, rank)
        say(done=number, rank=rank, records=[*map(int, batch.records)])
        if number == args.stop:
            break
    seen = store.pull("seen", np.arange(args.records))[:, 0].tolist()
    half = store.pull("seen", np.arange(1001, 1001 + 100))[:, 0]
    export(lambda path: path.write_bytes(np.asarray(seen).tobytes()))
    end(seen=seen, halves=half[half != 0])
last_line()
