"""The kinds of PaddlePaddle's EDL that we serve."""
