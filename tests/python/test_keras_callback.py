# SPDX-License-Identifier: Apache-2.0
"""Our callbacks are of no version of Keras, and act as one of each: the model that they are given
tells which it is."""

import keras
import pytest
from conftest import IS_KERAS_3

import kajitori
from kajitori import _keras3, _tf_keras
from kajitori._keras_callback import Callback, backend_of
from kajitori.keras import SteeringCallback


def test_each_hook_of_keras_is_there():
    theirs = {name for name in dir(keras.callbacks.Callback) if not name.startswith("_")}
    assert theirs - set(dir(Callback)) == set()


@pytest.mark.backends("tensorflow", "jax", "torch")
def test_a_list_of_callbacks_takes_ours_as_one_of_its_own():
    """And goes on running hooks of batches in threads, on backends where it does, unless we have one."""
    idle = keras.callbacks.CallbackList([Callback()])
    theirs = keras.callbacks.CallbackList([keras.callbacks.Callback()])
    steering = keras.callbacks.CallbackList([SteeringCallback()])
    assert vars(idle)["_async_train"] == vars(theirs)["_async_train"]
    assert vars(steering)["_async_predict"] == vars(theirs)["_async_predict"]
    assert not vars(steering)["_async_train"]


def test_the_model_tells_the_version():
    class Own(keras.Model):
        pass

    class Wrapper:
        module = Own()

    expected = _keras3 if IS_KERAS_3 else _tf_keras
    assert backend_of(Own()) is backend_of(Wrapper()) is expected
    with pytest.raises(kajitori.ArgumentError, match=r"builtins.int is no model of Keras 3 or tf"):
        backend_of(3)


def test_before_fit_there_is_no_model():
    assert SteeringCallback().model is None
