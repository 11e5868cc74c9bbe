"""Loads exported libraries as users do: plain tvm_ffi, in a process that is full of other libraries.

Usage: python_load_test.py DIR, where export_test_model has put inside.so, beside.so(.safetensors), checked.so.
"""

import gc
import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import onnxruntime
import safetensors.numpy
import tvm_ffi

try:  # a neighbour worth having, but a gigabyte: deploy/setup.sh --bench installs it
    import torch
except ModuleNotFoundError:
    torch = None

DIR = ""
W = 0.25 * (np.arange(1000) % 17).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return (x + 2 * W) * (2 * W)


def elf_section(path: str, name: str) -> bytes:
    """The bytes of a section of a 64-bit little-endian ELF file."""
    with open(path, "rb") as f:
        head = f.read(64)
        shoff, shentsize, shnum, shstrndx = (
            struct.unpack_from("<Q", head, 40)[0],
            *struct.unpack_from("<HHH", head, 58),
        )
        f.seek(shoff)
        table = f.read(shentsize * shnum)
        headers = [struct.unpack_from("<IIQQQQIIQQ", table, i * shentsize) for i in range(shnum)]
        f.seek(headers[shstrndx][4])
        names = f.read(headers[shstrndx][5])
        for header in headers:
            if names[header[0] : names.index(b"\0", header[0])].decode() == name:
                f.seek(header[4])
                return f.read(header[5])
    raise KeyError(name)


class PythonLoadTest(unittest.TestCase):
    def check(self, module, seed: float = 0.0) -> None:
        x = (np.arange(1000) % 50 + seed).astype(np.float32)
        y, again = module["main"](x)
        np.testing.assert_array_equal(np.from_dlpack(y), expected(x))
        np.testing.assert_array_equal(np.from_dlpack(again), x)

    def busy_neighbours(self) -> None:
        """torch with its own OpenMP threads and C++ exceptions, onnxruntime with its own pool."""
        if torch is not None:
            a = torch.ones(300, 300)
            self.assertEqual(float((a @ a)[0, 0]), 300.0)
            with self.assertRaises(RuntimeError):
                torch.ones(2, 3) @ torch.ones(2, 3)
        self.assertIn("CPUExecutionProvider", onnxruntime.get_available_providers())

    def test_several_libraries_beside_torch_and_onnxruntime(self) -> None:
        self.busy_neighbours()
        modules = [tvm_ffi.load_module(f"{DIR}/{n}.so") for n in ("inside", "beside", "checked")]
        for module in modules:
            module["set_num_threads"](2)
            self.check(module)
            self.busy_neighbours()
        for module in modules:
            self.check(module, 3)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_in_torch_out(self) -> None:
        module = tvm_ffi.load_module(f"{DIR}/inside.so")
        x = torch.arange(1000, dtype=torch.float32)
        y, _ = module["main"](x)
        self.assertIsInstance(y, torch.Tensor)
        np.testing.assert_array_equal(y.numpy(), expected(x.numpy()))

    def test_errors_are_exceptions_with_text(self) -> None:
        module = tvm_ffi.load_module(f"{DIR}/checked.so")
        with self.assertRaisesRegex(ValueError, r"expected 1 inputs, got 0"):
            module["main"]()
        with self.assertRaisesRegex(ValueError, r"input 0 'x': expected f32\[1000\], got f64\[1000\]"):
            module["main"](np.zeros(1000))
        with self.assertRaisesRegex(ValueError, r"expected f32\[1000\], got f32\[10, 100\]"):
            module["main"](np.zeros((10, 100), np.float32))
        with self.assertRaisesRegex(RuntimeError, "the second element is too big"):
            module["main"](np.full(1000, 1000, np.float32))
        self.check(module)

    def test_exceptions_inside_the_library_stay_there(self) -> None:
        # nlohmann throws on this header; libstdc++ and the unwinder are the library's own copies.
        with tempfile.TemporaryDirectory() as d:
            shutil.copy(f"{DIR}/beside.so", f"{d}/m.so")
            with open(f"{d}/m.so.safetensors", "wb") as f:
                f.write(struct.pack("<Q", 8) + b'{"bad": }')
            module = tvm_ffi.load_module(f"{d}/m.so")
            for _ in range(3):
                with self.assertRaisesRegex(ValueError, "m.so.safetensors: its header is damaged"):
                    module["main"](np.zeros(1000, np.float32))
            self.busy_neighbours()
            shutil.copy(f"{DIR}/beside.so.safetensors", f"{d}/m.so.safetensors")
            self.check(module)

    def test_one_thread_is_the_callers(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            shutil.copy(f"{DIR}/inside.so", f"{d}/m.so")  # a library that nobody has loaded yet
            module = tvm_ffi.load_module(f"{d}/m.so", keep_module_alive=False)
        module["set_num_threads"](1)
        before = set(os.listdir("/proc/self/task"))

        def started() -> int:
            return len(set(os.listdir("/proc/self/task")) - before)

        self.check(module)
        self.assertEqual(started(), 0)
        module["set_num_threads"](3)
        self.check(module)
        self.assertEqual(started(), 2)
        del module
        gc.collect()
        deadline = time.monotonic() + 20  # a thread that was joined may be listed a moment longer
        while started() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(started(), 0)

    def test_a_forked_child_runs_too(self) -> None:
        module = tvm_ffi.load_module(f"{DIR}/inside.so")
        module["set_num_threads"](2)
        self.check(module)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                self.check(module, 2)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the parent sees the exit code
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.check(module)

    def test_threads_at_once(self) -> None:
        modules = [tvm_ffi.load_module(f"{DIR}/{n}.so") for n in ("inside", "beside")]
        for module in modules:
            module["set_num_threads"](2)
        errors: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                for _ in range(50):
                    self.check(modules[seed % 2], seed)
            except BaseException as e:  # noqa: BLE001 - reported below
                errors.append(e)

        threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])

    def test_from_memory(self) -> None:
        # What the client's own-process JIT does: no file is left.
        with open(f"{DIR}/inside.so", "rb") as f:
            data = f.read()
        fd = os.memfd_create("inlay", os.MFD_CLOEXEC)
        os.write(fd, data)
        with tempfile.TemporaryDirectory() as d:
            os.symlink(f"/proc/{os.getpid()}/fd/{fd}", f"{d}/m.so")
            module = tvm_ffi.load_module(f"{d}/m.so")
        os.close(fd)
        self.check(module)

    def test_params_from_a_path(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            shutil.copy(f"{DIR}/beside.so", f"{d}/m.so")
            module = tvm_ffi.load_module(f"{d}/m.so")
            with self.assertRaisesRegex(RuntimeError, "cannot open .*m.so.safetensors"):
                module["load"]()
            module["load"](f"{DIR}/beside.so.safetensors")
            self.check(module)

    def test_other_weights_from_a_safetensors_file(self) -> None:
        params = safetensors.numpy.load_file(f"{DIR}/beside.so.safetensors")
        np.testing.assert_array_equal(params["layer.weight"], W)
        with tempfile.TemporaryDirectory() as d:
            shutil.copy(f"{DIR}/beside.so", f"{d}/m.so")
            tuned = {"layer.weight": W + 1, "another": np.zeros(3, np.int64)}
            safetensors.numpy.save_file(tuned, f"{d}/m.so.safetensors")
            x = np.ones(1000, np.float32)
            y = tvm_ffi.load_module(f"{d}/m.so")["main"](x)[0]
            np.testing.assert_array_equal(np.from_dlpack(y), (x + 2 * (W + 1)) * (2 * (W + 1)))

    def test_unloading_again_and_again(self) -> None:
        for _ in range(50):
            module = tvm_ffi.load_module(f"{DIR}/inside.so", keep_module_alive=False)
            module["set_num_threads"](2)
            self.check(module)
            y = module["main"](np.zeros(1000, np.float32))[0]
            del module
            gc.collect()
            np.testing.assert_array_equal(np.from_dlpack(y), expected(np.zeros(1000, np.float32)))

    def test_profile(self) -> None:
        module = tvm_ffi.load_module(f"{DIR}/inside.so")
        steps = json.loads(module["get_metadata"]())["plan"]["run"]
        times = np.from_dlpack(module["profile"](3, np.ones(1000, np.float32)))
        self.assertEqual((times.shape, times.dtype), ((3, len(steps)), np.int64))
        self.assertTrue((times >= 0).all() and times.sum() > 0)
        self.check(module)
        for wrong in ((), (0, np.ones(1000, np.float32)), (3,), (3, np.ones(999, np.float32)), ("3", np.ones(1000))):
            with self.assertRaises(ValueError):
                module["profile"](*wrong)

    def test_manifest(self) -> None:
        module = tvm_ffi.load_module(f"{DIR}/beside.so")
        text = module["get_metadata"]()
        self.assertEqual(elf_section(f"{DIR}/beside.so", ".inlay.manifest").decode(), text)
        manifest = json.loads(text)
        self.assertEqual(manifest["inlay_library"], 1)
        self.assertEqual(manifest["plan"]["inputs"], [{"name": "x", "dtype": "f32", "shape": [1000]}])


if __name__ == "__main__":
    DIR = sys.argv.pop(1)
    unittest.main(verbosity=2)
