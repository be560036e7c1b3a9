#!/bin/bash
# A batch job that may share its GPU: it names the profiled job that it is, and what it must keep.
# advisor slurm match gives it a partner and a share where the node's plug-in is installed; elsewhere
# the comment does nothing, and the job has the GPU alone.
#SBATCH --job-name=resnet
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00
#SBATCH --comment=advisor:job=resnet50-train,speed=0.5

srun python train.py
