"""TrainingJobs of PaddlePaddle's EDL: each is run by an ElasticJob of its name."""
