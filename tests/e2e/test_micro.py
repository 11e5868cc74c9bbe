"""The micro target: models as C sources (runtime crt, executor aot) that are built by others' compilers and run on emulated
machines, most of all on a Cortex-M3 without operating system or C library; and what is refused."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tarfile

import micro_models
import numpy as np
import onnx
import pytest
from conftest import reference
from micro_build import AARCH64, CORTEX_M3, HOST, RISCV64, STRICT, Library, Machine

import inlay
from inlay._proto import config_pb2
from inlay.client import Client

MODELS = {
    "float": micro_models.kws_float,
    "qdq": micro_models.kws_qdq,
    "integer": micro_models.kws_integer,
}
# What the linker may add to what the plan says: the alignment of each tensor and of the workspace, errno.
SLACK = 4 * 64
# Of stack, on a Cortex-M3: the models' own code and libm's.
MAX_STACK = 1024

EXECUTOR = config_pb2.Executor
C_API = {"interface_api": EXECUTOR.C, "unpacked_api": True}


def compile_micro(
    client: Client, model: onnx.ModelProto, system_lib: bool = False, target: str = "c -mcpu=cortex-m3", **api
) -> tuple[bytes, list[str]]:
    """The executable's digest, and the backends that took part."""
    config = config_pb2.CompilationConfig(
        targets=[inlay.Target(target).to_proto()],
        executor=EXECUTOR(kind=EXECUTOR.AOT, **api),
        runtime=config_pb2.Runtime(kind=config_pb2.Runtime.CRT, system_lib=system_lib),
    )
    module = inlay.from_onnx(model).with_configuration(config)
    result = client.compile(module.proto, module.weights)
    return result.executable, sorted({p.backend for p in result.report.partitions})


def export(client: Client, executable: bytes, folder: pathlib.Path) -> Library:
    tar = folder / "model.tar"
    with tar.open("wb") as out:
        for chunk in client.export(executable):
            out.write(chunk.library)
    return Library(tar, folder / "model")


def input_of(model: onnx.ModelProto, seed: int = 1) -> np.ndarray:
    tensor = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim]
    rng = np.random.default_rng(seed)
    if tensor.elem_type == onnx.TensorProto.INT8:
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(np.float32)


def check(result, want: np.ndarray) -> None:
    (got,) = result.outputs
    assert result.code == 0
    assert got.dtype == want.dtype
    if got.dtype == np.int8:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def skip_without(machine: Machine) -> None:
    if machine.missing:
        pytest.skip(f"{', '.join(machine.missing)} not installed (deploy/setup.sh --dev)")


@pytest.mark.parametrize("machine", [HOST, CORTEX_M3, AARCH64, RISCV64], ids=lambda m: m.name)
@pytest.mark.parametrize("name", MODELS)
def test_models(name, machine, client, tmp_path):
    """onnxruntime's answer on every machine, in the memory that the plan states."""
    skip_without(machine)
    model = MODELS[name]()
    executable, backends = compile_micro(client, model, **C_API)
    assert backends == ["csource"]
    library = export(client, executable, tmp_path)
    x = input_of(model)
    result = library.run(machine, [x])
    check(result, reference(model, {"spectrogram": x})[0])
    if machine.freestanding:
        memory = library.metadata["memory"]
        output_bytes = sum(t["size_bytes"] for t in library.metadata["outputs"])  # the program's input is in its flash
        assert memory["workspace_size_bytes"] <= result.ram
        assert result.ram <= memory["workspace_size_bytes"] + output_bytes + SLACK
        assert memory["constants_size_bytes"] <= result.flash
        assert result.stack <= MAX_STACK


@pytest.mark.parametrize("machine", [AARCH64, RISCV64], ids=lambda m: m.name)
@pytest.mark.parametrize("name", MODELS)
def test_cross_compiled(name, machine, client, tmp_path):
    """Objects by LLVM for another architecture, under the same entry point."""
    skip_without(machine)
    model = MODELS[name]()
    target = f"llvm -mtriple={machine.name}-linux-gnu"
    executable, backends = compile_micro(client, model, target=target, **C_API)
    assert backends == ["native"]
    library = export(client, executable, tmp_path)
    assert library.objects
    x = input_of(model)
    check(library.run(machine, [x]), reference(model, {"spectrogram": x})[0])


@pytest.mark.parametrize("system_lib", [False, True])
@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("interface", [EXECUTOR.C, EXECUTOR.PACKED], ids=["c", "packed"])
def test_interfaces(interface, unpacked, system_lib, client, tmp_path):
    """Every way to call it gives the same, on the Cortex-M3 where it can be had."""
    machine = HOST if CORTEX_M3.missing else CORTEX_M3
    model = micro_models.kws_float(channels=8, blocks=1)
    api = {"interface_api": interface, "unpacked_api": unpacked}
    executable, _ = compile_micro(client, model, system_lib, **api)
    library = export(client, executable, tmp_path)
    meta = library.metadata
    assert meta["interface_api"] == ("c" if interface == EXECUTOR.C else "packed")
    assert (meta["unpacked_api"], meta["system_lib"]) == (unpacked, system_lib)
    x = input_of(model)
    check(library.run(machine, [x]), reference(model, {"spectrogram": x})[0])


def test_kernels_are_found_by_name(client, tmp_path):
    model = micro_models.kws_float(channels=8, blocks=1)
    executable, _ = compile_micro(client, model, system_lib=True)
    library = export(client, executable, tmp_path)
    names = [f["function_name"] for f in library.metadata["functions"]]
    lookups = "\n".join(f'  if (inlay_crt_lookup("{name}") == NULL) code = 1;' for name in names)
    main = f"""
#include "{library.prefix}.h"
#include <stddef.h>
#include "platform.h"
int main(void) {{
  int32_t code = 0;
  if (inlay_crt_lookup("{library.prefix}_run") != NULL) code = 2; /* not registered yet */
  {library.prefix}_register();
  {library.prefix}_register(); /* once is enough, twice does no harm */
{lookups}
  if (inlay_crt_lookup("nothing") != NULL || inlay_crt_lookup("") != NULL) code = 3;
  put(code == 0 ? "code 0\\n" : "code 1\\n");
  return 0;
}}
"""
    assert library.run(HOST, [], main).code == 0


def test_wrong_arguments_are_errors(client, tmp_path):
    """Checked before anything runs: NULL, misaligned tensors and workspaces, a wrong number of arguments."""
    model = micro_models.kws_float(channels=8, blocks=1)
    executable, _ = compile_micro(client, model, **C_API)
    library = export(client, executable, tmp_path)
    p = library.prefix
    main = f"""
#include "{p}.h"
#include <stddef.h>
#include "platform.h"
static float x[490], y[13];
static struct {p}_workspace workspace;
static int failures;
static void expect(int32_t got, int32_t wanted) {{ failures += got != wanted; }}
int main(void) {{
  struct {p}_inputs inputs = {{x}};
  struct {p}_outputs outputs = {{y}};
  expect({p}_run(&inputs, &outputs, &workspace), INLAY_CRT_OK);
  expect({p}_run(NULL, &outputs, &workspace), INLAY_CRT_E_NULL);
  expect({p}_run(&inputs, NULL, &workspace), INLAY_CRT_E_NULL);
  expect({p}_run(&inputs, &outputs, NULL), INLAY_CRT_E_NULL);
  inputs.spectrogram = NULL;
  expect({p}_run(&inputs, &outputs, &workspace), INLAY_CRT_E_NULL);
  inputs.spectrogram = x;
  outputs.scores = (float *)(void *)((char *)y + 1);
  expect({p}_run(&inputs, &outputs, &workspace), INLAY_CRT_E_ALIGNMENT);
  put(failures == 0 ? "code 0\\n" : "code 1\\n");
  return 0;
}}
"""
    assert library.run(HOST, [], main).code == 0
    executable, _ = compile_micro(client, model)
    (tmp_path / "packed").mkdir()
    library = export(client, executable, tmp_path / "packed")
    main = f"""
#include "{p}.h"
#include <stddef.h>
#include "platform.h"
int main(void) {{
  void *const args[] = {{NULL, NULL, NULL}};
  int bad = {p}_run(args, 2) != INLAY_CRT_E_ARGUMENTS || {p}_run(NULL, 3) != INLAY_CRT_E_NULL;
  bad |= {p}_run(args, 3) != INLAY_CRT_E_NULL;
  put(bad ? "code 1\\n" : "code 0\\n");
  return 0;
}}
"""
    assert library.run(HOST, [], main).code == 0


def test_layout_of_the_tar(client, tmp_path):
    """MLF.md's, the same bytes every time, and sources that are cached like any other code."""
    model = micro_models.kws_float(channels=8, blocks=1)
    executable, _ = compile_micro(client, model, **C_API)
    library = export(client, executable, tmp_path)
    with tarfile.open(tmp_path / "model.tar") as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
    assert {
        "metadata.json",
        "codegen/host/include/inlaygen_default.h",
        "codegen/host/src/inlaygen_default.c",
        "codegen/host/src/inlaygen_default_internal.h",
        "codegen/host/src/inlaygen_default_constants.c",
        "executor-config/aot/default.plan.json",
        "parameters/default.safetensors",
        "runtime/include/inlay_crt.h",
        "runtime/include/inlay_ops.h",
        "runtime/src/inlay_crt.c",
        "runtime/freestanding/inlay_crt_memory.c",
        "src/relax.txt",
    } <= names
    meta = library.metadata
    assert meta["target"] == ["c -mcpu=cortex-m3"]
    assert meta["runtime"] == "crt"
    assert meta["executors"] == ["aot"]
    assert [t["shape"] for t in meta["inputs"]] == [micro_models.SHAPE]
    assert "fn @main" in (library.folder / "src/relax.txt").read_text()
    header = (library.folder / meta["header"]).read_text()
    assert f"#define INLAYGEN_DEFAULT_WORKSPACE_SIZE {meta['memory']['workspace_size_bytes']}\n" in header
    plan = json.loads((library.folder / "executor-config/aot/default.plan.json").read_text())
    assert plan["load"] == []  # nothing is left to be done at load
    (tmp_path / "again").mkdir()
    export(client, executable, tmp_path / "again")
    assert (tmp_path / "again/model.tar").read_bytes() == (tmp_path / "model.tar").read_bytes()


def test_other_weights_compile_nothing(client):
    """The sources of a fine-tuned checkpoint are the cache's."""
    compile_micro(client, micro_models.kws_float(channels=12, blocks=1, seed=1), **C_API)
    config = config_pb2.CompilationConfig(
        targets=[inlay.Target("c -mcpu=cortex-m3").to_proto()],
        executor=EXECUTOR(kind=EXECUTOR.AOT, **C_API),
        runtime=config_pb2.Runtime(kind=config_pb2.Runtime.CRT),
    )
    module = inlay.from_onnx(micro_models.kws_float(channels=12, blocks=1, seed=2)).with_configuration(config)
    report = client.compile(module.proto, module.weights).report
    assert report.actions_run == 0
    assert all(p.cache_hit for p in report.partitions)


def test_nothing_is_allocated(client, tmp_path):
    """The model's own objects: no writable data, and no calls but of libm, memcpy and memset."""
    skip_without(CORTEX_M3)
    executable, _ = compile_micro(client, micro_models.kws_float(), **C_API)
    library = export(client, executable, tmp_path)
    for source in library.sources:
        subprocess.run(
            [*CORTEX_M3.compiler, *STRICT, *library.include_options, "-c", str(source), "-o", str(tmp_path / "o.o")],
            check=True,
        )
        symbols = subprocess.run(
            ["arm-none-eabi-nm", str(tmp_path / "o.o")], capture_output=True, text=True, check=True
        ).stdout.split("\n")
        for kind, name in (line.split()[-2:] for line in symbols if line):
            if source.name == "inlay_crt.c":
                assert kind in "TtUrR" or name == "modules", f"{name} ({kind}) of {source.name}"
                continue
            assert kind in "TtUrR", f"{name} ({kind}) of {source.name} is writable"
            allowed = ("inlaygen_", "__aeabi_", "mem", "rintf", "sqrtf")
            assert kind != "U" or name.startswith(allowed), f"{source.name} calls {name}"


def test_refused(client, tmp_path):
    """Each by its code and its text."""
    model = micro_models.kws_float(channels=8, blocks=1)
    executable, _ = compile_micro(client, model, **C_API)
    with pytest.raises(inlay.CompileError, match="is for runtime crt.*export_library.*compile it with runtime cpp"):
        client.jit(executable, 0, 0)
    with pytest.raises(inlay.CompileError, match="link_params=false and the executable's runtime crt disagree"):
        list(client.export(executable, link_params=False))
    cumsum = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("CumSum", ["x", "axis"], ["y"], name="sum")],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 4])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 4])],
            [onnx.numpy_helper.from_array(np.int64(1), "axis")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
    )
    cumsum.ir_version = 8
    with pytest.raises(inlay.InlayError, match="cumsum"):
        compile_micro(client, cumsum, **C_API)
    with pytest.raises(inlay.UnsupportedError, match="kind 'llvm' for x86_64 with the runtime CRT.*use kind 'c'"):
        compile_micro(client, model, target="llvm", **C_API)
