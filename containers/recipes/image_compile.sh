# How both images compile Horovod; sourced after image_build.sh. The cached wheels' keys hash this.
compile_horovod() { # FOLDER: its wheel gets there in one step, so a half-made one is never seen
    $pip install --target /opt/build --no-compile $locked -r /mnt/locks/build
    export PYTHONPATH=/opt/build HOROVOD_CMAKE=/opt/build/bin/cmake MAKEFLAGS=-j$(nproc)
    export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_MPI=1
    export HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
    rm -rf "$1.tmp" "$1.source"
    # without isolation: the binary must be linked against the pinned TensorFlow
    $pip download --no-build-isolation $locked -d "$1.source" -r /mnt/locks/horovod # checks its hash
    tar -xzf "$1.source"/horovod-*.tar.gz -C "$1.source" --one-top-level=patched --strip-components=1
    patch -d "$1.source/patched" -p1 </mnt/horovod.patch
    $pip wheel -v --no-build-isolation --no-index --no-deps -w "$1.tmp" "$1.source/patched"
    rm -rf "$1.source"
    mv -T "$1.tmp" "$1"
}
