#!/bin/bash

# Parameters
#SBATCH --array=0-4%5
#SBATCH --chdir=/home/ada/horoscale
#SBATCH --comment=horoscale:r1:0
#SBATCH --cpus-per-task=1
#SBATCH --dependency=afterok:12
#SBATCH --gres=gpu:pretend:2
#SBATCH --job-name=horoscale-smoke-1a2b3c4d
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --mail-type=FAIL
#SBATCH --mem=1536M
#SBATCH --nice=100
#SBATCH --no-requeue
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --open-mode=append
#SBATCH --output=/scratch/ada/results/smoke/.submitit/run/%A_%a_0_log.out
#SBATCH --partition=practice
#SBATCH --reservation=box
#SBATCH --signal=B:USR2@30
#SBATCH --spread-job
#SBATCH --time=60
#SBATCH --wckey=study

# setup
trap '' USR2
hs_failed() { echo "[batch] $hs_line failed on ${SLURMD_NODENAME-$HOSTNAME} (exit code $1)"; trap - EXIT; exit 78; }
trap 'hs_failed $?' EXIT
hs_line='. /etc/profile'
type module &>/dev/null || . /etc/profile
hs_load() {
  hs_before=${LOADEDMODULES-}
  module load "$1" || return
  [[ ":${LOADEDMODULES-}:" == *:"$1"[:/]* || ${LOADEDMODULES-} != "$hs_before" ]] && return
  ! (module load no-such-module) &>/dev/null && return
  (unset LOADEDMODULES _LMFILES_; module load "$1"; [[ ${LOADEDMODULES-} ]]) &>/dev/null
}
hs_line='module load apptainer/1.3'
hs_load apptainer/1.3 || hs_failed $?
hs_line='module load '"'"'it'"'"'"'"'"'"'"'"'s'"'"''
hs_load 'it'"'"'s' || hs_failed $?
hs_line='ulimit -l unlimited'
trap 'hs_code=$?; ((${#BASH_SOURCE[@]} > 1)) || hs_failed $hs_code' ERR
eval -- "$hs_line"
hs_code=$?
((hs_code == 0)) || hs_failed $hs_code
trap - EXIT ERR
builtin cd /home/ada/horoscale || exit 66
export PYTHONPATH=/home/ada/horoscale
export SLURM_CONF=/run/practice/slurm.conf

# command
export SUBMITIT_EXECUTOR=slurm
test -r /scratch/ada/results/smoke/.submitit/run/tasks.json || exit 66
exec /opt/venv/bin/python3 -u -m jobs.slurm.job /scratch/ada/results/smoke/.submitit/run/tasks.json
