"""`make life`: the soak of ordinary life, trainings of every kind under trouble that kills nothing."""
