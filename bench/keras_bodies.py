# SPDX-License-Identifier: Apache-2.0
"""For keras_overhead.py: calls the body of each of its callbacks many times, inside of valgrind, which
begins a new count at each getppid(). Keras is a stand-in, since none of it is in the bodies and
TensorFlow is no program for valgrind. Prints how many calls it made of each.
"""

import os
import sys
import types

import kajitori

CALLS = 2000

callbacks = types.SimpleNamespace(Callback=object)
sys.modules["keras"] = types.SimpleNamespace(
    __version__="3", __spec__=object(), callbacks=callbacks, Model=object
)


def main() -> None:
    from keras_overhead import NAMES, Empty, Polling

    from kajitori.keras import SteeringCallback

    steering = SteeringCallback()
    steering.run = kajitori.Run()
    steering.run._open_gate(steering)
    steering._look_ns = 2**62  # metrics go out twice a second, whatever a step takes
    bodies = {"empty": Empty(), "steering": steering, "polling": Polling(sys.argv[1])}
    logs = {"loss": 0.5, "accuracy": 0.5}
    for name in NAMES:
        end = bodies[name].on_train_batch_end
        for batch in range(100):
            end(batch, logs)
        os.getppid()
        for batch in range(CALLS):
            end(batch, logs)
        os.getppid()
    print(CALLS)


main()
