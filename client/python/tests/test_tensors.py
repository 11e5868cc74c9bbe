"""What may be handed to a compiled function, and that memory is shared where it can be."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest

from inlay import tensors

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def readonly(value):
    value = value.copy()
    value.flags.writeable = False
    return value


@pytest.mark.parametrize(
    "value",
    [
        FLOATS,
        readonly(FLOATS),
        FLOATS.T,
        FLOATS[:, ::2],
        FLOATS.astype(">f4"),
        np.float64(3.5),
        np.zeros((0, 3), np.float32),
        readonly(np.zeros((0, 3), np.float32)),
        np.array([True, False]),
        np.arange(3, dtype=np.int8),
    ],
)
def test_numpy_arrays(value):
    tensor, _alive = tensors.to_tensor(value)
    got = np.from_dlpack(tensor)
    np.testing.assert_array_equal(got, value)
    assert got.shape == np.shape(value)
    np.testing.assert_array_equal(tensors.to_numpy(value), value)


@pytest.mark.parametrize("make", [lambda a: a, readonly])
def test_dense_arrays_are_not_copied(make):
    value = make(FLOATS)
    tensor, _alive = tensors.to_tensor(value)
    assert np.from_dlpack(tensor).ctypes.data == value.ctypes.data


def test_bfloat16_keeps_its_type_and_lets_go():
    value = FLOATS.astype(ml_dtypes.bfloat16)
    tensor, _alive = tensors.to_tensor(value)
    assert str(tensor.dtype) == "bfloat16"
    assert tuple(tensor.shape) == (2, 3)
    assert len(tensors._alive) == 1
    del tensor
    assert not tensors._alive


def test_buffers():
    tensor, _alive = tensors.to_tensor(array.array("f", [1, 2, 3]))
    np.testing.assert_array_equal(np.from_dlpack(tensor), [1, 2, 3])


def test_torch():
    torch = pytest.importorskip("torch")
    value = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.from_dlpack(tensors.to_tensor(value.T)[0]), value.T.numpy())
    np.testing.assert_array_equal(tensors.to_numpy(value.T), value.T.numpy())
    half = tensors.to_numpy(value.to(torch.bfloat16))
    assert half.dtype == ml_dtypes.bfloat16
    with pytest.raises(TypeError, match="detach"):
        tensors.to_tensor(value.requires_grad_())


@pytest.mark.parametrize("value", ["text", [1.0, 2.0], None, np.array(["a"]), np.array([None]), np.array([1j])])
def test_no_tensors(value):
    with pytest.raises(TypeError, match="input 'x'"):
        tensors.to_tensor(value, "input 'x'")
