# Shell functions that the definitions of both images share; sourced in their %post sections.
# /mnt holds what image.py lays out: downloads, locks, apt's settings. It is in no image.
set -eu
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

compile_horovod() { # FOLDER: its wheel gets there in one step, so a half-made one is never seen
    $pip install --target /opt/build --no-compile $locked -r /mnt/locks/build
    export PYTHONPATH=/opt/build HOROVOD_CMAKE=/opt/build/bin/cmake MAKEFLAGS=-j$(nproc)
    export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_MPI=1
    export HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
    rm -rf "$1.tmp"
    # without isolation: the binary must be linked against the pinned TensorFlow
    $pip wheel -v --no-build-isolation $locked -w "$1.tmp" -r /mnt/locks/horovod
    mv -T "$1.tmp" "$1"
}

install_horovod() { # FOLDER
    $pip install $system --no-index --no-deps "$1"/horovod-*.whl
    find $packages/horovod -name '*.so' -exec strip --strip-unneeded {} +
}

remove_unneeded() { # headers, tests and static libraries: only compiling and developing need them
    rm -rf $packages/tensorflow/include $packages/tensorflow/xla_aot_runtime_src $packages/clang
    find $packages -type d \( -name tests -o -path '*/nvidia/*/include' \) -prune -exec rm -rf {} +
    find $packages -name '*.a' -delete
}

bytecode() { # never checked, because an image's files do not change and nobody can rewrite them
    # (some packages carry files for other Python versions, which need not compile)
    python3 -m compileall -q --invalidation-mode unchecked-hash $packages >/dev/null || true
}

tidy() {
    rm -rf /root/.cache /var/log/*.log /var/log/apt/* /var/cache/debconf/*-old /tmp/*
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
}
