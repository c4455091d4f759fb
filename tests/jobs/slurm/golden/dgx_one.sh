#!/bin/bash

# Parameters
#SBATCH --chdir=/home/ada/horoscale
#SBATCH --cpus-per-task=14
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --job-name=horoscale-smoke-1a2b3c4d
#SBATCH --mem=400G
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --open-mode=append
#SBATCH --output=/scratch/ada/results/smoke/.submitit/run/%j_0_log.out
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=B:USR2@90
#SBATCH --time=240

# setup
trap '' USR2
export PYTHONPATH=/home/ada/horoscale

# command
export SUBMITIT_EXECUTOR=slurm
test -r /scratch/ada/results/smoke/.submitit/run/tasks.json || exit 66
exec /opt/venv/bin/python3 -u -m jobs.slurm.job /scratch/ada/results/smoke/.submitit/run/tasks.json
