# Shell functions that the definitions of both images share; sourced in their %post sections.
# /mnt holds what image.py lays out: downloads, locks, apt's settings. It is in no image.
# Apptainer shows the machine's own /tmp and /var/tmp to a build: nothing here writes there.
set -eu
export TMPDIR=/mnt/tmp
export APT_CONFIG=/mnt/apt.conf DEBIAN_FRONTEND=noninteractive
packages=/usr/local/lib/python3.11/dist-packages
pip="python3 -m pip --no-cache-dir --disable-pip-version-check --quiet"
# no index: what the locks name was downloaded before, so that only locked files can get in
locked="--no-index --find-links /mnt/downloads --no-deps --require-hashes"
system="--break-system-packages --no-compile --root-user-action=ignore"

debian() { # PACKAGE...
    apt-get update -qq
    apt-get -y -qq install "$@"
}

python_packages() { # as locked, beside Debian's Python
    $pip install $system $locked -r /mnt/locks/packages
}

install_horovod() { # FOLDER
    $pip install $system --no-index --no-deps "$1"/horovod-*.whl
    find $packages/horovod -name '*.so' -exec strip --strip-unneeded {} +
}

remove_unneeded() { # what only compiling, developing and looking at training in a browser need
    rm -rf $packages/tensorflow/include $packages/tensorflow/xla_aot_runtime_src $packages/clang
    rm -rf $packages/tensorboard_data_server/bin $packages/tensorboard/webfiles.zip
    find $packages -type d \( -name tests -o -path '*/nvidia/*/include' \) -prune -exec rm -rf {} +
    find $packages -name '*.a' -delete
}

find_libraries() { # FOLDER...: for the loader, whatever LD_LIBRARY_PATH says in a job
    for folder; do [ ! -d "$folder" ] || echo "$folder"; done >/etc/ld.so.conf.d/horoscale.conf
    ldconfig
}

bytecode() { # never checked, because an image's files do not change and nobody can rewrite them
    # (some packages carry files for other Python versions, which need not compile)
    python3 -m compileall -q --invalidation-mode unchecked-hash $packages >/dev/null || true
}

tidy() {
    rm -rf /root/.cache /var/lib/apt/lists/* /var/log/*.log /var/log/apt/* /var/cache/debconf/*-old
}

label() { # KEY VALUE
    echo "horoscale.version.$1 $2" >>"$APPTAINER_LABELS"
}

debian_version_of() { # PACKAGE
    dpkg-query -W -f '${Version}' "$1"
}

label_versions() { # TENSORFLOW HOROVOD
    label python "$(python3 -c 'import platform; print(platform.python_version())')"
    label tensorflow "$1"
    label horovod "$2"
    label openmpi "$(debian_version_of libopenmpi3)"
    label pmix "$(debian_version_of libpmix2)"
    label debian "$(cat /etc/debian_version)"
    [ -d $packages/nvidia ] || return 0
    label cuda 12.2
    label nccl "$(python3 -c 'from importlib.metadata import version as v; print(v("nvidia-nccl-cu12"))')"
}
