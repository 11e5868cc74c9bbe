"""Running compiled models: LibraryModule (in this process), Tensor results, and VirtualMachine.

`module["main"](*inputs)` takes NumPy arrays, PyTorch tensors, or whatever speaks DLPack or the buffer protocol, in the
order of the model's inputs, and returns a tensor, or a tuple of tensors, that `numpy.from_dlpack` reads. Inputs that the
model updates (`IRModule.with_updates`) are written to, and returned.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlay.ir.dims import Shape
from inlay.modules import Module, ModuleError, ModuleProperty
from inlay.server_errors import RunError
from inlay.tensors import check_writeable, to_tensor

TensorSpec = tuple[str, str, Shape]  # name, dtype ("f32"), shape; a text in it: a dimension that is open ("2*batch")
MODEL_FUNCTIONS = ("main",)  # take the model's inputs (core/artifact/FORMAT.md)


class Function:
    """One function of a Module. Thread-safe as far as the module is (exported libraries are)."""

    def __init__(self, function: Any, name: str, inputs: Sequence[TensorSpec], updates: Sequence[int] = ()):
        self._function = function
        self._name = name
        self._inputs = inputs
        self._updates = updates

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Runs it. Inputs by position, or all by name.

        Raises TypeError for a wrong number of inputs, something that is no tensor, or one that can't be written to
        where the model updates it; RunError for a wrong dtype or shape and for what goes wrong inside.
        """
        ordered = order_inputs(self._name, self._inputs, args, named)
        check_updated(self._inputs, self._updates, ordered)
        tensors, alive = [], []
        for spec, value in zip(self._inputs, ordered, strict=True):
            tensor, owner = to_tensor(value, f"input {spec[0]!r}")
            tensors.append(tensor)
            alive.append(owner)
        try:
            result = self._function(*tensors)
        except (RuntimeError, ValueError, TypeError) as error:
            raise RunError(f"{self._name}: {_first_line(error)}") from None
        if hasattr(result, "__dlpack__"):
            return result
        return tuple(result)


class LibraryModule(Module):
    """A compiled model loaded into this process: runnable, and nothing else (what is loaded can't be exported again).

    Attributes:
        inputs, outputs: [(name, dtype, shape)] in call order.
        updates: of each output the input whose memory it is written to, and which it is then; -1: none.
        required_extents: what must be 0 or more in a run (`Manifest.required_extents`).
        ffi: the underlying tvm_ffi.Module.
    """

    kind = "library"
    properties = ModuleProperty.RUNNABLE

    def __init__(
        self, ffi: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], name: str = "",
        updates: Sequence[int] | None = None, required_extents: Sequence[str] = (),
    ):  # fmt: skip
        super().__init__(name)
        self.ffi = ffi
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.updates = list(updates) if updates is not None else [-1] * len(self.outputs)
        self.required_extents = list(required_extents)

    def own_function(self, name: str) -> Any | None:
        try:
            function = self.ffi.get_function(name)
        except AttributeError:
            return None
        # Functions that a user linked in have signatures of their own.
        return Function(function, name, self.inputs, self.updates) if name in MODEL_FUNCTIONS else function

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self["main"](*inputs, **named)

    def run(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Runs "main" on {input name: tensor}; returns {output name: array}."""
        result = self["main"](**inputs)
        results = result if isinstance(result, tuple) else (result,)
        return {spec[0]: as_numpy(value) for spec, value in zip(self.outputs, results, strict=True)}

    def profile(self, inputs: dict[str, Any], runs: int) -> np.ndarray:
        """Runs "main" on {input name: tensor} so often; returns i64[runs, steps]: nanoseconds of each of the plan's run
        steps. Raises TypeError, RunError as "main" does, RunError also for a library of an older inlay."""
        try:
            function = self.ffi.get_function("profile")
        except AttributeError:
            raise RunError("the library can't time its steps: it is of an older inlay; export it again") from None
        ordered = order_inputs("profile", self.inputs, (), inputs) if inputs else ()
        check_updated(self.inputs, self.updates, ordered)
        pairs = [to_tensor(value, f"input {spec[0]!r}") for spec, value in zip(self.inputs, ordered, strict=True)]
        try:
            return np.from_dlpack(function(runs, *(tensor for tensor, _ in pairs)))
        except (RuntimeError, ValueError, TypeError) as error:
            raise RunError(f"profile: {_first_line(error)}") from None

    def load(self, num_threads: int = 0) -> None:
        """Does what the first call would do otherwise, with so many threads (0: what it was compiled for)."""
        if num_threads:
            self.ffi.get_function("set_num_threads")(num_threads)
        self.ffi.get_function("load")()


class VirtualMachine:
    """Runs a module on a device.

    Args:
        module: a runnable Module, a RemoteModule, or an Executable, whose `jit()` is called then.
        device: "cpu" is the only one.

    Raises ModuleError where the module can't run and can't be made to, saying what would.
    """

    def __init__(self, module: Any, device: Any = "cpu"):
        if str(device).partition(":")[0] != "cpu":
            raise ValueError(f"device {device} is not supported; this version runs on the CPU")
        if hasattr(module, "jit"):
            module = module.jit()
        if isinstance(module, str | os.PathLike):
            raise ModuleError(f"{module!r} is a path: give inlay.load_library(path) to the VirtualMachine")
        if not hasattr(module, "__getitem__"):
            raise ModuleError(f"a VirtualMachine runs a Module or an Executable, not {type(module).__name__}")
        if isinstance(module, Module) and not module.is_runnable:
            raise ModuleError(f"{module} can't run as it is: import it into an Executable and jit() that, or export "
                              "a library with it and load that")  # fmt: skip
        self.module = module

    def __getitem__(self, name: str) -> Any:
        return self.module[name]


def order_inputs(name: str, specs: Sequence[TensorSpec], args: Sequence[Any], named: dict[str, Any]) -> Sequence[Any]:
    """The inputs in call order. Raises TypeError naming what is missing or unknown."""
    names = [spec[0] for spec in specs]
    if named:
        if args:
            raise TypeError(f"{name}: give all inputs by position, or all by name")
        wrong = sorted(set(named) ^ set(names))
        if wrong:
            raise TypeError(f"{name} takes the inputs {', '.join(names)}; missing or unknown: {', '.join(wrong)}")
        return [named[n] for n in names]
    if len(args) != len(names):
        raise TypeError(f"{name} takes {len(names)} input(s) ({', '.join(names)}), not {len(args)}")
    return args


def check_updated(specs: Sequence[TensorSpec], updates: Sequence[int], values: Sequence[Any]) -> None:
    """Raises TypeError naming an input that is to be written to (`LibraryModule.updates`) and can't be."""
    for i in updates:
        if i >= 0:
            check_writeable(values[i], f"input {specs[i][0]!r}")


def as_numpy(tensor: Any) -> np.ndarray:
    """A result as a NumPy array, without a copy; bfloat16 becomes ml_dtypes.bfloat16."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if str(tensor.dtype) == "bfloat16":
        import ml_dtypes
        import torch  # the one library that reads it through DLPack

        return torch.from_dlpack(tensor).view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return np.from_dlpack(tensor)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
