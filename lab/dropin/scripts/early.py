"""The probe, after variables that torch reads when it is imported: `early.py FOLDER torch`."""

import os
import runpy

os.environ["OMP_NUM_THREADS"] = "3"
os.environ["TORCH_LOGS"] = "+dynamo"

import torch

print(torch.get_num_threads())
runpy.run_path("probe.py", run_name="__main__")
