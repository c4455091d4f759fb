#!/bin/bash

# Parameters
#SBATCH --array=0-2%3
#SBATCH --chdir=/home/ada/horoscale
#SBATCH --cpus-per-task=8
#SBATCH --job-name=horoscale-smoke-1a2b3c4d
#SBATCH --mem=16G
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --open-mode=append
#SBATCH --output=/scratch/ada/results/smoke/.submitit/run/%A_%a_0_log.out
#SBATCH --partition=compute
#SBATCH --requeue
#SBATCH --signal=B:USR2@90
#SBATCH --time=120

# setup
trap '' USR2
export PYTHONPATH=/home/ada/horoscale

# command
export SUBMITIT_EXECUTOR=slurm
test -r /scratch/ada/results/smoke/.submitit/run/tasks.json || exit 66
exec /opt/venv/bin/python3 -u -m jobs.slurm.job /scratch/ada/results/smoke/.submitit/run/tasks.json
