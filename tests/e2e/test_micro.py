"""The micro target: models as C sources (runtime crt, executor aot) that are built by others' compilers and run on emulated
machines, most of all on a Cortex-M3 without operating system or C library; and what is refused."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tarfile

import grpc
import micro_models
import numpy as np
import onnx
import pytest
from conftest import reference
from micro_build import AARCH64, CORTEX_M3, HOST, RISCV64, SANITIZED, STRICT, Library, Machine
from test_models import SMALL

import inlay
from inlay.bench import make_inputs

MODELS = {
    "float": micro_models.kws_float,
    "qdq": micro_models.kws_qdq,
    "integer": micro_models.kws_integer,
    "attention": SMALL["bert"],
}
# What the linker may add to what the plan says: the alignment of each tensor and of the workspace, errno.
SLACK = 4 * 64
# Of stack, on a Cortex-M3: the models' own code and libm's.
MAX_STACK = 1024

C_API = {"interface-api": "c", "unpacked-api": True}


def compile_micro(
    client, model: onnx.ModelProto, system_lib=False, target="c -mcpu=cortex-m3", **api
) -> inlay.Executable:
    config = inlay.CompilationConfig(
        targets=[target], executor=inlay.Executor("aot", api), runtime=inlay.Runtime("crt", {"system-lib": system_lib})
    )
    return inlay.build(inlay.from_onnx(model), config, server=client)


def export(executable: inlay.Executable, folder: pathlib.Path, name: str = "") -> Library:
    tar = executable.export_library(folder / f"{name or 'model'}.tar", model_name=name)
    return Library(tar, folder / (name or "model"))


def input_of(model: onnx.ModelProto, seed: int = 1) -> np.ndarray:
    """Of a model with one input."""
    tensor = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim]
    rng = np.random.default_rng(seed)
    if tensor.elem_type == onnx.TensorProto.INT8:
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(np.float32)


def inputs_of(executable: inlay.Executable, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    if len(executable.inputs) == 1:
        return {executable.inputs[0][0]: input_of(model)}
    return make_inputs(executable.inputs)


def check(result, want: np.ndarray) -> None:
    (got,) = result.outputs
    assert result.code == 0
    assert got.dtype == want.dtype
    if got.dtype == np.int8:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def require(machine: Machine) -> None:
    if machine.missing:
        pytest.fail(f"{', '.join(machine.missing)} not installed (deploy/setup.sh --dev)")


@pytest.mark.parametrize("machine", [HOST, SANITIZED, CORTEX_M3, AARCH64, RISCV64], ids=lambda m: m.name)
@pytest.mark.parametrize("name", MODELS)
def test_models(name, machine, client, tmp_path):
    """onnxruntime's answer on every machine, in the memory that the plan states."""
    require(machine)
    model = MODELS[name]()
    executable = compile_micro(client, model, **C_API)
    assert set(executable.report.backends()) == {"csource"}
    library = export(executable, tmp_path)
    inputs = inputs_of(executable, model)
    result = library.run(machine, list(inputs.values()))
    check(result, reference(model, inputs)[0])
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
    require(machine)
    model = MODELS[name]()
    target = f"llvm -mtriple={machine.name}-linux-gnu"
    executable = compile_micro(client, model, target=target, **C_API)
    assert set(executable.report.backends()) == {"native"}
    library = export(executable, tmp_path)
    assert library.objects
    inputs = inputs_of(executable, model)
    check(library.run(machine, list(inputs.values())), reference(model, inputs)[0])


@pytest.mark.parametrize("system_lib", [False, True])
@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("interface", ["c", "packed"])
def test_interfaces(interface, unpacked, system_lib, client, tmp_path):
    """Every way to call it gives the same, on the Cortex-M3 where it can be had."""
    machine = HOST if CORTEX_M3.missing else CORTEX_M3
    model = micro_models.kws_float(channels=8, blocks=1)
    api = {"interface-api": interface, "unpacked-api": unpacked}
    library = export(compile_micro(client, model, system_lib, **api), tmp_path)
    meta = library.metadata
    assert meta["interface_api"] == interface
    assert (meta["unpacked_api"], meta["system_lib"]) == (unpacked, system_lib)
    x = input_of(model)
    check(library.run(machine, [x]), reference(model, {"spectrogram": x})[0])


def test_kernels_are_found_by_name(client, tmp_path):
    model = micro_models.kws_float(channels=8, blocks=1)
    library = export(compile_micro(client, model, system_lib=True), tmp_path)
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
    library = export(compile_micro(client, model, **C_API), tmp_path)
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
    (tmp_path / "packed").mkdir()
    library = export(compile_micro(client, model), tmp_path / "packed")
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
    executable = compile_micro(client, model, **C_API)
    library = export(executable, tmp_path)
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
    cxx = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", "c++"]
    subprocess.run([*cxx, *library.include_options, str(library.folder / meta["header"])], check=True)
    plan = json.loads((library.folder / "executor-config/aot/default.plan.json").read_text())
    assert plan["load"] == []  # nothing is left to be done at load
    (tmp_path / "again").mkdir()
    export(executable, tmp_path / "again")
    assert (tmp_path / "again/model.tar").read_bytes() == (tmp_path / "model.tar").read_bytes()


def test_other_weights_compile_nothing(client):
    """The sources of a fine-tuned checkpoint are the cache's."""
    compile_micro(client, micro_models.kws_float(channels=12, blocks=1, seed=1), **C_API)
    report = compile_micro(client, micro_models.kws_float(channels=12, blocks=1, seed=2), **C_API).report
    assert report.actions_run == 0
    assert all(p.cache == "hit" for p in report.partitions)


def test_two_models_in_one_program(client, tmp_path):
    """They share kernels in the cache, and no name in the program."""
    models = {"one": micro_models.kws_float(channels=8, blocks=1), "two": micro_models.kws_float(8, 1, seed=9)}
    libraries = {n: export(compile_micro(client, m, **C_API), tmp_path, n) for n, m in models.items()}
    x = input_of(models["one"])
    values = ", ".join(float(v).hex() + "f" for v in x.reshape(-1))
    calls = "".join(
        f"""  static struct inlaygen_{n}_workspace {n}_workspace;
  const struct inlaygen_{n}_inputs {n}_inputs = {{x}};
  const struct inlaygen_{n}_outputs {n}_outputs = {{y}};
  code |= inlaygen_{n}_run(&{n}_inputs, &{n}_outputs, &{n}_workspace);
  for (int i = 0; i < 12; ++i) printf("%s%a", i == 0 ? "" : " ", (double)y[i]);
  printf("\\n");
"""
        for n in models
    )
    main = tmp_path / "main.c"
    main.write_text(
        "#include <stdio.h>\n"
        + "".join(f'#include "inlaygen_{n}.h"\n' for n in models)
        + f"static const float x[] = {{{values}}};\nint main(void) {{\n  float y[12];\n  int code = 0;\n{calls}  return code;\n}}\n"
    )
    command = [*HOST.compiler, *STRICT, str(main), "-o", str(tmp_path / "both"), *libraries["one"].include_options]
    command += libraries["two"].include_options
    sources = {s.name: s for library in libraries.values() for s in library.sources}  # one runtime
    subprocess.run([*command, *map(str, sources.values()), "-lm"], check=True)
    said = subprocess.run([str(tmp_path / "both")], check=True, capture_output=True, text=True).stdout
    for line, model in zip(said.splitlines(), models.values(), strict=True):
        got = np.float32([[float.fromhex(word) for word in line.split()]])
        np.testing.assert_allclose(got, reference(model, {"spectrogram": x})[0], rtol=1e-4, atol=1e-5)


def test_command_line(shared_daemon, client, tmp_path):
    """In the manner of tvmc; `inspect` shows the memory that the model needs."""
    onnx.save(micro_models.kws_float(channels=8, blocks=1), tmp_path / "m.onnx")
    tar = tmp_path / "m.tar"
    words = ["compile", tmp_path / "m.onnx", "--server", shared_daemon.address, "--target=c", "--executor=aot"]
    words += ["--runtime=crt", "--executor-aot-interface-api=c", "--executor-aot-unpacked-api=1", "-o", tar]
    assert cli(*words)[0] == 0
    library = Library(tar, tmp_path / "m")
    assert library.metadata["interface_api"] == "c"
    status, said = cli("inspect", tar)
    memory = library.metadata["memory"]
    assert status == 0
    assert f"{memory['workspace_size_bytes']} bytes of workspace" in said
    assert f"{memory['constants_size_bytes']} bytes of constants" in said
    assert f"{memory['io_size_bytes']} bytes of inputs and outputs" in said
    status, said = cli("inspect", tar, "--json")
    assert json.loads(said) == library.metadata
    (tmp_path / "other.tar").write_bytes(b"")
    with tarfile.open(tmp_path / "other.tar", "w"):
        pass
    status, said = cli("inspect", tmp_path / "other.tar")
    assert status == 1
    assert "is a tar, but not one that inlay exported" in said


def cli(*words) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "inlay", *map(str, words)], check=False, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def test_nothing_is_allocated(client, tmp_path):
    """The model's own objects: no writable data, and no calls but of libm, memcpy and memset."""
    require(CORTEX_M3)
    library = export(compile_micro(client, micro_models.kws_float(), **C_API), tmp_path)
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
    executable = compile_micro(client, model, **C_API)
    wanted = "is for runtime crt.*export_library.*compile it with runtime cpp"
    for run in (executable.jit, lambda: inlay.VirtualMachine(executable)):
        with pytest.raises(inlay.ModuleError, match=wanted):
            run()
    with pytest.raises(inlay.CompileError, match=wanted) as refused:
        client.jit(bytes.fromhex(executable.digest), 0, 0)
    assert refused.value.code == grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(
        inlay.CompileError, match="link_params=false and the executable's runtime crt disagree"
    ) as refused:
        executable.export_library(tmp_path / "m.tar", link_params=False)
    assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(inlay.CompileError, match="the model's name 'a b' must consist of 1 to 48 letters") as refused:
        executable.export_library(tmp_path / "m.tar", model_name="a b")
    assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT
    tar = executable.export_library(tmp_path / "m.tar")
    with pytest.raises(inlay.LoadError, match="it is a model library .runtime crt.: build it for its device"):
        inlay.load_library(tar)
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


def test_a_server_that_runs_no_code(start_daemon):
    """It can't do the weights' own work (batch-norm into convolutions), and says so; models without such are fine."""
    client = start_daemon(flags=("--trust_cache_for_jit=false",)).client
    with pytest.raises(inlay.CompileError, match="transform_params.*trust_cache_for_jit=false") as refused:
        compile_micro(client, micro_models.kws_float(channels=8, blocks=1), **C_API)
    assert refused.value.code == grpc.StatusCode.FAILED_PRECONDITION
    compile_micro(client, micro_models.kws_integer(), **C_API)
