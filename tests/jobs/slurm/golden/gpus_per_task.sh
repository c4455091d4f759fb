#!/bin/bash

# Parameters
#SBATCH --account=a
#SBATCH --chdir=/home/ada/horoscale
#SBATCH --constraint='ib&a100'
#SBATCH --cpus-per-task=1
#SBATCH --gpus-per-task=a100:1
#SBATCH --job-name=horoscale-smoke-1a2b3c4d
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=3
#SBATCH --open-mode=append
#SBATCH --output=/scratch/ada/results/smoke/.submitit/run/%j_0_log.out
#SBATCH --qos=q
#SBATCH --requeue
#SBATCH --signal=B:USR2@90
#SBATCH --time=60

# setup
trap '' USR2
export PYTHONPATH=/home/ada/horoscale

# command
export SUBMITIT_EXECUTOR=slurm
test -r /scratch/ada/results/smoke/.submitit/run/tasks.json || exit 66
exec /opt/venv/bin/python3 -u -m jobs.slurm.job /scratch/ada/results/smoke/.submitit/run/tasks.json
