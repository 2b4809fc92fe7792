"""What `make bench-training` measures: training with us, torchrun, DLRover and torchft on this machine."""
