"""Functions of this process that a compiled model calls by name (`FunctionBuilder.call_packed`, executor vm).

    @inlay.register_func("mine.clip")
    def clip(x: np.ndarray) -> np.ndarray: ...

They are found in tvm-ffi's global registry, so one that another library has registered there can be called as well. A
model that calls any runs in the process that has them: an exported library, or `ex.jit()`; not in the daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def register_func(name: str, function: Callable[..., Any] | None = None, override: bool = False) -> Callable[..., Any]:
    """Registers `function`, or gives a decorator that does. Returns the function.

    It is called with a NumPy array for each argument (its own) and returns an array, or a tuple or list of as many as
    the model says, of exactly the dtypes and shapes that it says. An exception that it raises fails the run, with its
    text. It may be called from several threads at once.

    Raises ValueError where the name is taken and `override` is False.
    """
    if function is None:
        return lambda f: register_func(name, f, override)
    import tvm_ffi

    def call(*tensors: Any) -> Any:
        result = function(*(np.from_dlpack(t) for t in tensors))
        if isinstance(result, tuple | list):
            return [_tensor(tvm_ffi, r) for r in result]
        return _tensor(tvm_ffi, result)

    try:
        tvm_ffi.register_global_func(name, call, override=override)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"register_func: {str(error).splitlines()[0]}") from None
    return function


def _tensor(tvm_ffi: Any, value: Any) -> Any:
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    return tvm_ffi.from_dlpack(array if array.flags.writeable else array.copy())
