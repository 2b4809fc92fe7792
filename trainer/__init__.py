"""What runs in a training container: the agent, and the library that training scripts use.

`elasticjob.trainer.torch` is what a script imports; `elasticjob.trainer.agent` is what `elasticjob run`
starts. This package itself imports neither torch nor the network, so that a user's image pays nothing for it.
"""
