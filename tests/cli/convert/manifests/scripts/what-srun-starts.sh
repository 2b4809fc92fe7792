#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --job-name=digits
#SBATCH --time=10 --requeue
export LR=3
srun bash -c 'python train.py "$@" --node $SLURM_NODEID' _ --lr $LR --tasks $SLURM_NTASKS
