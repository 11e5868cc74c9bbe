"""build and Executable: a model compiled on a server, to be exported, or loaded here or there."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc

from inlay import bundle
from inlay._proto import compile_service_pb2 as pb
from inlay._proto import config_pb2
from inlay.c_header import c_header
from inlay.client import Client, Progress
from inlay.config import CompilationConfig, Executor, Runtime, make
from inlay.daemon import connect
from inlay.ir import IRModule
from inlay.library import MemoryFiles, load_library, read_manifest
from inlay.modules import CompiledModule, ExecutorModule, Module, ModuleError, ObjectModule, addons_of, nodes
from inlay.passes import PassContext, PassInfo
from inlay.remote import RemoteModule, specs
from inlay.report import Report
from inlay.runtime import LibraryModule
from inlay.server_errors import CompileError, NotFoundError
from inlay.target import Target

T = TypeVar("T")


def build(
    mod: IRModule,
    target_or_config: str | Target | CompilationConfig | config_pb2.CompilationConfig | None = None,
    *,
    server: str | Client | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
    want_plan: bool = False,
) -> Executable:
    """Compiles a module; uploads those of its weights that the server lacks.

    Args:
        mod: from `inlay.from_onnx`, or the builder.
        target_or_config: "llvm -mcpu=native", a Target, a CompilationConfig (`inlay.config.cpu()`), or None: the
            module's own configuration if it has one, else `Target.current()`, else this machine for a daemon on it,
            and x86-64-v3 for a server elsewhere. A `PassContext` around the call adds to it.
        server: an address ("unix:/path", "host:port"); None: $INLAY_SERVER, else this user's own daemon, which is
            started if none runs.
        progress: called with (phase, done, total, detail) as the work goes on.
        timeout: seconds; the work stops when they are over.
        want_plan: also get the execution plan (`Executable.plan`), which is otherwise in an exported library only.

    Raises CompileError (what is wrong with the module, naming the place), UnsupportedError, ServerUnavailableError,
    ServerBusyError, DeadlineExceededError, DaemonError.
    """
    client = connect(server)
    if target_or_config is None:
        target_or_config = mod.config if mod.has_config else Target.current()
    passes = PassContext.current()
    config = passes.applied(make(target_or_config))
    needs_host = client.is_local and (not config.targets or any(t.is_native for t in config.targets))
    host = client.server_info().host if needs_host else None
    default = Target("llvm -mcpu=native") if client.is_local else None
    config = config.resolved(host, default)
    module = mod.with_configuration(config)
    uploaded = [0]

    def watch(phase: str, done: int, total: int, detail: str) -> None:
        if phase == "upload":
            uploaded[0] = total
        if progress is not None:
            progress(phase, done, total, detail)

    instruments = passes.instruments
    for instrument in instruments:
        instrument.enter_build()
    ran = 0

    def on_pass(trace: pb.PassTrace) -> None:
        nonlocal ran
        for instrument in instruments:
            instrument.run_after_pass(PassInfo(trace.name, ran, trace.ms, trace.ir))
        ran += 1

    result = client.compile(
        module.proto,
        module.weights,
        progress=watch,
        timeout=timeout,
        want_plan=want_plan,
        on_pass=on_pass if instruments else None,
    )
    for instrument in instruments:
        instrument.exit_build()
    report = Report.from_proto(result.report)
    report["upload_bytes"] = uploaded[0]
    return Executable(client, result, config, report, module)


def check_writable(path: pathlib.Path) -> None:
    """Raises FileNotFoundError where there is no folder that the file could be written to."""
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"can't write {path}: there is no folder {path.parent}; make it first")


class Executable:
    """A compiled model on a server. Small on this side: its digest, its report, and the types of inputs and outputs.

    Attributes:
        digest: names it on the server (hex).
        report: what the compile did (`Report`).
        inputs, outputs: [(name, dtype, shape)] in call order.
        config: the configuration it was compiled with, targets resolved.
        cover: which backend took what; `CompilationConfig(pinned=ex.cover)` repeats it without a search.
        plan: what the executor does (core/runtime/PLAN.md), where `build` was asked for it; else None.

    Keeps its module (and so the weights) for the case that the server has lost a blob of it since.
    """

    def __init__(
        self,
        client: Client,
        result: pb.CompileEvent.Result,
        config: CompilationConfig,
        report: Report,
        module: IRModule,
    ):
        self.client = client
        self._module = module
        self.digest = result.executable.hex()
        self.cover = result.report.cover
        self.plan: dict[str, Any] | None = json.loads(result.plan_json) if result.plan_json else None
        self.report = report
        self.inputs = specs(result.inputs)
        self.outputs = specs(result.outputs)
        self.config = config
        self._imports: list[Module] = []
        self._jitted: dict[Any, LibraryModule] = {}

    # `ex.load_library(path)` reads like its counterpart `ex.export_library(path)`.
    load_library = staticmethod(load_library)

    @property
    def _is_crt(self) -> bool:
        return Runtime(self.config.runtime).kind == "crt"

    @property
    def imported_modules(self) -> list[Module]:
        """Modules of your own that `import_module` added."""
        return list(self._imports)

    def import_module(self, module: Module) -> None:
        """Adds a module of your own: its functions become the library's, or those of what `jit` returns. What was
        returned before stays as it is."""
        self._imports.append(module)
        self._jitted.clear()

    @property
    def mod(self) -> Module:
        """The tree that `jit` and `export_library` act on: the executor, which imports what each backend compiled, and
        your own modules."""
        root = ExecutorModule(Executor(self.config.executor).kind, self.digest[:12])
        for part in self.report["partitions"]:
            root.import_module(CompiledModule(part["name"], part["backend"], part["ops"]))
        for module in self._imports:
            root.import_module(module)
        return root

    def jit(
        self,
        fcompile: str | Callable | None = None,
        *,
        remote: bool = False,
        num_threads: int = 0,
        options: Sequence[str] = (),
    ) -> LibraryModule | RemoteModule:
        """A runnable module: what can be exported is linked by the server and loaded from memory, what can only be run
        is imported again. Called twice with the same arguments, it returns the same module.

        Args:
            fcompile: for imported sources (`SourceModule.compile`); no compiler is needed otherwise.
            remote: load the model into the server instead, where it is run over the wire. Takes no modules of your own.
            num_threads: of the model; 0: what it was compiled for.
            options: for fcompile.

        Raises ModuleError, LoadError.
        """
        if self._is_crt:
            raise ModuleError(
                "the executable is for runtime crt: sources or objects that are built for the device. Write them with "
                'export_library("model.tar") and build that with the device\'s compiler; to run the model here, compile '
                "it with runtime cpp"
            )
        if remote:
            if self._imports:
                raise ModuleError(f"{self._imports[0]} is yours, and a server runs no code of its clients: use jit()")
            return self.remote_jit(num_threads=num_threads)
        key = (fcompile, num_threads, tuple(options))
        if key not in self._jitted:
            self._jitted[key] = self._load(fcompile, num_threads, options)
        return self._jitted[key]

    def _load(self, fcompile: str | Callable | None, num_threads: int, options: Sequence[str]) -> LibraryModule:
        own = nodes(self._imports)
        addons = addons_of([m for m in own if m.is_exportable], fcompile, options)
        with MemoryFiles() as files:

            def download() -> None:
                files.clear()
                for chunk in self.client.export(bytes.fromhex(self.digest), addons=addons):
                    files.library.write(chunk.library)
                    files.params.write(chunk.params)

            self._restoring(download)
            module = files.load(num_threads)
        for imported in own:
            if not imported.is_exportable:
                module.import_module(imported)
        return module

    def remote_jit(self, *, num_threads: int = 0, idle_expiry_s: float = 0) -> RemoteModule:
        """Loads the model into the server; it stays until `unload()`, or until it was idle for so many seconds
        (0: the server's default)."""
        digest = bytes.fromhex(self.digest)
        return RemoteModule(self.client, self._restoring(lambda: self.client.jit(digest, num_threads, idle_expiry_s)))

    def export_library(
        self,
        path: str | os.PathLike,
        fcompile: str | Callable | None = None,
        addons: Sequence[Module | str | os.PathLike] = (),
        *,
        link_params: bool | None = None,
        options: Sequence[str] = (),
        model_name: str = "",
    ) -> pathlib.Path:
        """Writes the model as a shared library (runtime crt: a Model Library Format tar); returns its path. Replaces an
        earlier file only when all has arrived. With the executor's interface-api c, a C header lies beside it
        ("model.h" for "model.so"), whose functions the library then has too.

        Args:
            path: of the library.
            fcompile: for sources among the modules (`SourceModule.compile`).
            addons: what else to link in, besides the imported modules: modules, or files of objects.
            link_params: parameters inside, or beside it in "<path>.safetensors" (False); None: as it was configured.
            options: for fcompile.
            model_name: what C names begin with (runtime crt); "": "default".

        Raises ModuleError naming a member that can't be exported and its kind, FileNotFoundError.
        """
        path = pathlib.Path(path)
        check_writable(path)
        objects = self._objects(addons, fcompile, options)
        beside = pathlib.Path(f"{path}.safetensors")
        link_params = self.config.link_params if link_params is None else link_params
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.resolve().parent) as folder:
            library, params = pathlib.Path(folder) / "library", pathlib.Path(folder) / "params"

            def download() -> None:
                with library.open("wb") as out, params.open("wb") as out_params:
                    for chunk in self.client.export(
                        bytes.fromhex(self.digest), link_params, addons=objects, model_name=model_name
                    ):
                        out.write(chunk.library)
                        out_params.write(chunk.params)

            self._restoring(download)
            library.chmod(0o644 if self._is_crt else 0o755)
            if params.stat().st_size:
                params.replace(beside)
            library.replace(path)
        if Executor(self.config.executor).options.get("interface-api") == "c" and not self._is_crt:
            path.with_suffix(".h").write_text(c_header(read_manifest(path).data["plan"], path.name))
        return path

    def export_bundle(
        self,
        path: str | os.PathLike,
        link_params: bool | None = None,
        fcompile: str | Callable | None = None,
        addons: Sequence[Module | str | os.PathLike] = (),
        options: Sequence[str] = (),
    ) -> pathlib.Path:
        """Writes a folder that runs the model on a machine with glibc and nothing else (deploy/README.md): model.so, the
        shared libraries that it needs, their licences, and `run`, a program. An earlier bundle there is replaced.
        Arguments and refusals are those of `export_library`."""
        objects = self._objects(addons, fcompile, options)
        link_params = self.config.link_params if link_params is None else link_params

        def fill(folder: pathlib.Path) -> None:
            def download() -> None:
                bundle.clear(folder)
                digest = bytes.fromhex(self.digest)
                bundle.receive(self.client.export(digest, link_params, addons=objects, bundle=True), folder)

            self._restoring(download)

        return bundle.write(path, fill)

    def _objects(self, addons: Sequence[Module | str | os.PathLike], fcompile: Any, options: Sequence[str]) -> list:
        """What is linked in besides the model: of the imported modules, and of `addons`."""
        more = [a if isinstance(a, Module) else ObjectModule(a) for a in addons]
        return addons_of(nodes([*self._imports, *more]), fcompile, options)

    def _restoring(self, call: Callable[[], T]) -> T:
        """`call`; again, after uploading and compiling again, where the server has lost a blob of the executable
        (evicted, or found damaged when it was read). Goes on as long as that brings back something."""
        restored = True
        while True:
            try:
                return call()
            except (CompileError, NotFoundError) as error:
                lost = error.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)
                if not (lost and restored):
                    raise
            restored = self.client.upload(self._module.weights) > 0
            self.client.compile(self._module.proto)

    def __repr__(self) -> str:
        return f"<Executable {self.digest[:12]}: {len(self.report['partitions'])} partitions>"
