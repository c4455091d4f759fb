#!/bin/sh
# Run Python 3.11 with these arguments: the one that PYTHON= names, else the one that made .venv, one
# on PATH, or one that is fetched into .venv.envs, once. Plain sh, because login nodes have Python
# 3.6 and small systems none. pip checks the hash of uv, and uv the hash of Python: the pins decide both.
set -u
# what the user's shell says to cd and to other installations
unset CDPATH PYTHONHOME PYTHONPATH PYTHONWARNINGS PYTHONINSPECT PYTHONOPTIMIZE
unset PIP_REQUIREMENT PIP_CONSTRAINT PIP_PYTHON PIP_ISOLATED PIP_NO_BINARY
unset UV_OFFLINE UV_MANAGED_PYTHON UV_NO_MANAGED_PYTHON UV_CONFIG_FILE UV_PROJECT UV_PYTHON_PREFERENCE
export PIP_REQUIRE_VIRTUALENV=0 UV_PYTHON_DOWNLOADS=automatic UV_NO_CONFIG=1
root=$(cd "$(dirname "$0")/.." && pwd)
made=${VENV:-$root/.venv}
made=${made%/}
own=$made.envs/python
uv=$(cat "$root/containers/locks/uv.pin")
installer=${uv%% *}

say() { printf '[setup] %s\n' "$*" >&2; }

is_wanted() { # PYTHON
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
}

# 1: no environment can be made with this Python (Debian splits parts of it off); 3: root alone could
# start that environment, though others can enter its folder
complete='import ensurepip, os, pathlib, sys, venv
def closed(name):
    path = pathlib.Path(name)
    parts = [path.absolute(), *path.absolute().parents, path.resolve(), *path.resolve().parents]
    return any(part.exists() and not part.stat().st_mode & 1 for part in parts)
if sys.version_info[:2] != (3, 11): sys.exit(1)
if os.geteuid() == 0 and closed(sys.executable) and not closed(sys.argv[1]): sys.exit(3)'

closed=
is_complete() { # PYTHON
    [ -x "$1" ] || return
    "$1" -c "$complete" "$made" >/dev/null 2>&1
    code=$?
    [ $code != 3 ] || closed=${closed:-$1}
    [ $code != 0 ] || [ -z "$closed" ] ||
        say "using $1, since only root can start what is made with $closed, which is in a closed folder"
    return $code
}

package() { # how this distribution installs Python 3.11, if it has it
    if [ -r /etc/os-release ]; then . /etc/os-release; fi
    case " ${ID-} ${ID_LIKE-} ${VERSION_ID-} " in
    *' debian '*' 12 ') echo 'apt-get install python3 python3-venv' ;;
    *' ubuntu '*) echo 'add-apt-repository ppa:deadsnakes/ppa && apt-get install python3.11-venv' ;;
    *' rhel '* | *' fedora '*) echo 'dnf install python3.11' ;;
    *' suse '*) echo 'zypper install python311' ;;
    esac
}

refuse() { # WHAT WAS FOUND
    say "$1. Expected: Python 3.11, the newest that TensorFlow 2.15 has wheels for. Ways to get it:"
    as_root=$(package)
    [ -z "$as_root" ] || say "  as root: $as_root"
    say "  with your cluster's modules: module load python/3.11 (module avail python lists them)"
    say "  uv python install 3.11, conda create -p DIR python=3.11, or pyenv install 3.11"
    [ -z "$closed" ] || say "  PYTHON=$closed, which is in a closed folder: for root alone"
    say "  a mirror within your site: make UV_PYTHON_INSTALL_MIRROR=URL PIP_INDEX_URL=URL ..."
    say 'Then run the same again; one that is not on PATH is named: make PYTHON=/path/to/python3.11 ...'
    exit 2
}

fetch_uv() { # its path
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv "$work/venv" >/dev/null 2>&1 || refuse \
            "$version with neither pip nor a complete venv to fetch one (Debian, Ubuntu: install python3-venv)"
        python=$work/venv/bin/python
    fi
    echo "$uv" >"$work/uv.txt"
    "$python" -m pip download --quiet --no-input --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --platform manylinux2014_x86_64 --implementation py --abi none \
        --python-version 311 -d "$work" -r "$work/uv.txt" >&2 ||
        refuse "$version's pip cannot fetch $installer (that of Python 3.8 or later can)"
    "$python" -m zipfile -e "$work"/uv-*.whl "$work/uv"
    program=$(echo "$work"/uv/uv-*.data/scripts/uv)
    chmod +x "$program"
    echo "$program"
}

fetch() ( # into $own; a subshell, so that its trap clears up here
    [ "$(id -u)" != 0 ] || umask 022 # others are to use it
    { mkdir -p "$own" && work=$(mktemp -d "$own/fetch.XXXXXX"); } || refuse \
        "found no complete Python 3.11, and no room for one in $own (VENV=PATH names another place)"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    python=$(command -v python3) || refuse 'found no Python at all, and so no pip to fetch one with'
    version=$("$python" --version 2>&1)
    say "found $version, no complete Python 3.11: fetching one into $own (once, with $installer and pip)"
    program=$(fetch_uv) || exit
    UV_PYTHON_INSTALL_DIR=$own UV_CACHE_DIR=$work/cache "$program" python install --no-bin 3.11 >&2 ||
        refuse 'uv cannot fetch Python 3.11'
)

case $made in '' | '~'*)
    say "VENV=$VENV: found no path that every shell reads alike, expected one from / or the checkout on"
    exit 2 ;;
esac
if [ -n "${PYTHON-}" ]; then
    is_complete "$(command -v "$PYTHON")"
    [ -z "$closed" ] || say "only root can start what is made with $closed, which is in a closed folder"
    is_wanted "$PYTHON" && exec "$PYTHON" "$@"
    found=$("$PYTHON" --version 2>&1) || found='no Python that runs'
    say "PYTHON=$PYTHON: found $found, expected Python 3.11. Name another, or leave PYTHON= out:" \
        'then one is found or fetched'
    exit 2
fi
set -f && IFS=: # all of PATH: what is first there may be of no use
for name in python3.11 python3; do
    for folder in $PATH; do found=${found-}:$folder/$name; done
done
set +f
made_with=$(readlink -f "$made/bin/python")
case $made_with in
"$(readlink -f "$own" || echo "$own")"/*) ;;
*.envs/python/*) made_with= ;; # of the checkout that this one is a copy of
esac
for candidate in "$made_with" ${found-} "$own"/*/bin/python3.11; do
    is_complete "$candidate" && unset IFS && exec "$candidate" "$@"
done
unset IFS
if [ "$(uname -s) $(uname -m)" != 'Linux x86_64' ]; then
    say "found $(uname -s) on $(uname -m), expected Linux on x86_64: TensorFlow 2.15 with its addons has" \
        'wheels for nothing else. Plans and reports need only a Python 3.11: make PYTHON=/path/to/it ...'
    exit 2
fi
fetch "$@" || exit
for candidate in "$own"/*/bin/python3.11; do
    is_wanted "$candidate" && exec "$candidate" "$@"
done
refuse "the Python fetched into $own does not run here"
