"""Code that runs in a training container: the agent, and the library for training scripts.

A script imports `elasticjob.trainer.torch`; `elasticjob run` starts `elasticjob.trainer.agent`. This package
itself imports neither torch nor aiohttp, so that it adds no import time.
"""
