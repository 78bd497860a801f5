# SPDX-License-Identifier: Apache-2.0
"""One of the workers of a MultiWorkerMirroredStrategy: the first one sends commands to itself in the
middle of an epoch, and prints what became of them."""

import json

import tensorflow as tf

import kajitori
from kajitori.keras import SteeringCallback

tf.config.threading.set_intra_op_parallelism_threads(1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile("sgd", "mse")

refused, batches = {}, []


def send(batch, logs):
    batches.append(batch)
    if strategy.cluster_resolver.task_id == 0 and len(batches) == 7:
        with kajitori.connect() as client:
            for line in ("stop", "stop at=epoch", "set lr=0.5", "pause", "note hello"):
                try:
                    client.send(line, wait="accepted")
                except kajitori.RejectedError as error:
                    refused[line] = str(error)


data = tf.data.Dataset.from_tensor_slices((tf.ones((40, 4)), tf.ones((40, 1)))).batch(4).repeat()
steering = SteeringCallback()
told = tf.keras.callbacks.LambdaCallback(on_train_batch_end=send)
model.fit(data, epochs=3, steps_per_epoch=5, verbose=0, callbacks=[steering, told])
run = steering.run
print(
    json.dumps([run.rank, run.world_size, len(batches), list(refused), sorted({*refused.values()})])
)
