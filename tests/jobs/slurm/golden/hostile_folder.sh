#!/bin/bash

# Parameters
#SBATCH --array=0-1%2
#SBATCH --chdir='/it'"'"'s a "root"'
#SBATCH --cpus-per-task=1
#SBATCH --gres=gpu:pretend:1
#SBATCH --job-name=horoscale-smoke-1a2b3c4d
#SBATCH --mail-type=FAIL
#SBATCH --mem=768M
#SBATCH --nice=100
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output='/scratch/o'"'"'neil & "sons"/$HOME `x` #1; é/.submitit/run/%A_%a_0_log.out'
#SBATCH --partition=practice
#SBATCH --reservation=box
#SBATCH --signal=B:USR2@30
#SBATCH --spread-job
#SBATCH --time=60
#SBATCH --wckey=study

# setup
trap '' USR2
type module >/dev/null 2>&1 || . /etc/profile
module load apptainer/1.3
module load 'it'"'"'s'
ulimit -l unlimited
export PYTHONPATH='/it'"'"'s a "root"'
export SLURM_CONF=/run/practice/slurm.conf

# command
export SUBMITIT_EXECUTOR=slurm
test -r '/scratch/o'"'"'neil & "sons"/$HOME `x` #1; é/.submitit/run/tasks.json' || exit 66
exec /opt/venv/bin/python3 -u -m jobs.slurm.job '/scratch/o'"'"'neil & "sons"/$HOME `x` #1; é/.submitit/run/tasks.json'
