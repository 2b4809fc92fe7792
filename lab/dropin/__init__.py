"""The same stories with python, torchrun and `elasticjob run`: `make dropin`."""
