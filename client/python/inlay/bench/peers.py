"""How each peer compiles and runs a model. All take f32 as f32, and as many threads as asked for.

A peer is a function from a Job to Prepared. It imports its packages itself: one that is not installed is a column that
says so. To add one: such a function, and a line in PEERS and in PACKAGES.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Job:
    """What a peer's process is to run; travels as JSON.

    Attributes:
        model: path of the ONNX file, its shapes fixed but for dimensions that are left open.
        inputs: path of an .npz, by name.
        threads: of the peer's pool; cores: those that it may run on.
        scratch: a folder of this peer and model; what lies there from an earlier process is a warm cache.
        subject: what the torch form is made of (subjects.torch_module); empty: there is none.
        library: path of the exported library, for inlay.
        avx2: AVX2's instructions only, on a CPU that has more; of AVX2_PEERS.
        mixed_precision: "bf16": products in that; of MIXED_PEERS. "": f32 like everybody else.
    """

    model: str
    inputs: str
    threads: int
    cores: list[int]
    scratch: str
    subject: dict[str, Any]
    library: str = ""
    avx2: bool = False
    mixed_precision: str = ""

    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.inputs) as loaded:
            return {name: loaded[name] for name in loaded.files}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """run: one call; arrays: its result as NumPy arrays; import_s: spent importing packages, no part of compiling."""

    run: Callable[[], Any]
    arrays: Callable[[Any], Sequence[np.ndarray]]
    version: str
    import_s: float = 0.0


# Who can be held to AVX2, and by which environment; onnxruntime and OpenVINO have no switch for it.
AVX2_PEERS = ("torch.compile", "aotinductor", "iree")
AVX2_ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "TORCHINDUCTOR_CPP_MARCH": "x86-64-v3",
}

MIXED_PEERS = ("openvino", "torch.compile")  # its hint; autocast


class Importing:
    """Measures imports: `with Importing() as importing: import torch`, then importing.seconds."""

    seconds = 0.0

    def __enter__(self):
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._started


def inlay_peer(job: Job) -> Prepared:
    with Importing() as importing:
        import tvm_ffi  # noqa: F401

        import inlay
        from inlay.runtime import as_numpy
    module = inlay.load_library(job.library, job.threads)
    main = module["main"]
    given = job.arrays()
    inputs = [given[spec[0]] for spec in module.inputs]

    def arrays(result):
        return [as_numpy(value) for value in (result if isinstance(result, tuple) else (result,))]

    return Prepared(lambda: main(*inputs), arrays, inlay.__version__, importing.seconds)


def onnxruntime_peer(job: Job) -> Prepared:
    with Importing() as importing:
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    inputs = job.arrays()
    return Prepared(lambda: session.run(None, inputs), list, onnxruntime.__version__, importing.seconds)


def openvino_peer(job: Job) -> Prepared:
    with Importing() as importing:
        import openvino
    core = openvino.Core()
    precision = job.mixed_precision or "f32"  # its default on recent CPUs is bf16
    options = {
        "INFERENCE_NUM_THREADS": job.threads, "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY",
    }  # fmt: skip
    request = core.compile_model(core.read_model(job.model), "CPU", options).create_infer_request()
    inputs = job.arrays()

    def run():
        request.infer(inputs, share_inputs=True, share_outputs=True)
        return request.output_tensors

    return Prepared(
        run, lambda tensors: [t.data for t in tensors], openvino.__version__.partition("-")[0], importing.seconds
    )


def _torch(job: Job):
    """(torch, its module, its inputs in call order, seconds of importing)."""
    # Before torch is imported: a cache of this job alone, so that the first process compiles and the second finds.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(pathlib.Path(job.scratch) / "inductor")
    with Importing() as importing:
        import torch
        import torch._inductor.config

        if job.subject.get("kind") == "random" and not job.subject["operator"]:
            import transformers  # noqa: F401
    torch.set_num_threads(job.threads)
    torch._inductor.config.freezing = True
    if job.avx2:
        torch._inductor.config.cpp.simdlen = 256
    from inlay.bench import subjects

    module = subjects.torch_module(job.subject)
    given = job.arrays()
    return torch, module, [torch.from_numpy(array) for array in given.values()], importing.seconds


def _torch_arrays(result) -> Sequence[np.ndarray]:
    tensors = result if isinstance(result, (tuple, list)) else (result,)
    # NumPy has no bfloat16, which autocast may leave.
    return [(t.float() if str(t.dtype) == "torch.bfloat16" else t).detach().numpy() for t in tensors]


def torch_compile_peer(job: Job) -> Prepared:
    torch, module, inputs, imported = _torch(job)
    compiled = torch.compile(module, mode="max-autotune-no-cudagraphs")

    def run():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bool(job.mixed_precision)):
            return compiled(*inputs)

    return Prepared(run, _torch_arrays, torch.__version__, imported)


def aotinductor_peer(job: Job) -> Prepared:
    torch, module, inputs, imported = _torch(job)
    package = pathlib.Path(job.scratch) / "model.pt2"
    with torch.no_grad():
        if not package.exists():
            exported = torch.export.export(module, tuple(inputs))
            options = {"freezing": True, "max_autotune": True}
            torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=options)
        loaded = torch._inductor.aoti_load_package(str(package))

    def run():
        with torch.no_grad():
            return loaded(*inputs)

    return Prepared(run, _torch_arrays, torch.__version__, imported)


def iree_peer(job: Job) -> Prepared:
    with Importing() as importing:
        from iree import compiler, runtime
        from iree.compiler.tools.import_onnx import __main__ as importer
    binary = pathlib.Path(job.scratch) / "model.vmfb"
    if not binary.exists():
        mlir = pathlib.Path(job.scratch) / "model.mlir"
        importer.main(importer.parse_arguments([job.model, "-o", str(mlir), "--opset-version", "17"]))
        cpu = "x86-64-v3" if job.avx2 else "host"
        options = [f"--iree-llvmcpu-target-cpu={cpu}", "--iree-opt-level=O3", "--iree-opt-data-tiling=true"]
        # A check only: what it refuses at 32 KiB runs well on any thread.
        options.append("--iree-llvmcpu-stack-allocation-limit=262144")
        compiler.compile_file(str(mlir), output_file=str(binary), target_backends=["llvm-cpu"], extra_args=options)
    if job.threads == 1:
        device = "local-sync"
    else:
        device = "local-task"
        runtime.flags.parse_flags(f"--task_topology_group_count={job.threads}")
    context = runtime.SystemContext(config=runtime.Config(device))
    with open(binary, "rb") as file:
        context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, file.read()))
    module = next(m for name, m in context.modules.items() if name != "hal")
    function = module[
        next(name for name in module.vm_module.function_names if not name.startswith("_") and "$" not in name)
    ]
    # On the device once: IREE would copy host arrays at each call, which its users need not.
    inputs = [runtime.asdevicearray(context.config.device, array) for array in job.arrays().values()]

    def run():
        result = function(*inputs)
        return result if isinstance(result, (tuple, list)) else (result,)

    def arrays(result):
        return [r.to_host() for r in result]

    return Prepared(run, arrays, importlib.metadata.version("iree-base-compiler"), importing.seconds)


PEERS: dict[str, Callable[[Job], Prepared]] = {
    "inlay": inlay_peer,
    "onnxruntime": onnxruntime_peer,
    "openvino": openvino_peer,
    "torch.compile": torch_compile_peer,
    "aotinductor": aotinductor_peer,
    "iree": iree_peer,
}
OTHERS = tuple(name for name in PEERS if name != "inlay")
# (module to look for, distributions whose versions are shown)
_PACKAGES = {
    "onnxruntime": ("onnxruntime", ("onnxruntime",)),
    "openvino": ("openvino", ("openvino",)),
    "torch.compile": ("torch", ("torch",)),
    "aotinductor": ("torch", ("torch",)),
    "iree": ("iree.compiler", ("iree-base-compiler", "iree-base-runtime")),
}


def not_held_to_avx2(peer: str) -> str:
    """What to say of a peer that has no switch for it; "" of the others."""
    return "" if peer == "inlay" or peer in AVX2_PEERS else "can't be held to AVX2"


def without_mixed_precision(peer: str) -> str:
    """The same of one that computes f32 models in f32 alone."""
    return "" if peer == "inlay" or peer in MIXED_PEERS else "no mixed precision"


def missing(peer: str) -> str:
    """What to say of a peer whose packages are not there; "" where they are."""
    module, distributions = _PACKAGES[peer]
    try:
        found = importlib.util.find_spec(module) is not None
        for distribution in distributions:
            importlib.metadata.version(distribution)
    except (ImportError, importlib.metadata.PackageNotFoundError):
        found = False
    return "" if found else f"not installed (pip install {' '.join(distributions)}, or deploy/setup.sh --bench)"


@functools.cache
def version(peer: str) -> str:
    return importlib.metadata.version(_PACKAGES[peer][1][0])
