"""The usual Keras and Horovod script, as a user writes it. It imports nothing of this project, and
runs as ranks that horovodrun, or who sets its variables, has started.

Usage: plain.py FOLDER BATCH: FOLDER has network.json, images.npy and labels.npy. It takes turns as
worlds.py has it: prints the seconds of a step, reads the steps of a turn, takes so many per line
that it reads, and prints the images and seconds of each turn.
"""

import json
import sys
import time
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

folder, batch = Path(sys.argv[1]), int(sys.argv[2])
hvd.init()
images = np.load(folder / "images.npy")[hvd.rank() :: hvd.size()].astype(np.float32)
labels = np.load(folder / "labels.npy")[hvd.rank() :: hvd.size()]
batches = tf.data.Dataset.from_tensor_slices((images, labels))
batches = batches.repeat().shuffle(10_000).batch(batch)

model = tf.keras.models.model_from_json((folder / "network.json").read_text())
model.compile(
    hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001)),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(batches, steps_per_epoch=2, verbose=0, callbacks=[broadcast])


class Turns(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if not sys.stdin.readline():
            sys.exit()
        hvd.allreduce(np.zeros(1, np.float32))
        self.begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self.begin
        print(json.dumps({"images": steps * batch, "seconds": seconds}), flush=True)


begin = time.perf_counter()
model.fit(batches, steps_per_epoch=10, verbose=0)
print(json.dumps({"step_s": (time.perf_counter() - begin) / 10}), flush=True)
steps = int(sys.stdin.readline())
model.fit(batches, steps_per_epoch=steps, epochs=1_000_000, verbose=0, callbacks=[Turns()])
