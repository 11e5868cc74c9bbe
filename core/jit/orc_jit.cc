#include "core/jit/orc_jit.h"

#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/artifact/elf_check.h"
#include "core/artifact/static_library.h"
#include "core/base/status_macros.h"
#include "core/jit/external_symbols.h"
#include "core/runtime/cpu_features.h"
#include "core/runtime/dependencies.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/MemoryBuffer.h"

namespace inlay::jit {
namespace {

namespace orc = llvm::orc;

// Whether this machine has what the code needs: the CPU, and the shared libraries, which the shims that it calls load
// or are linked with.
absl::Status CheckMachine(const std::vector<const proto::StaticLibrary*>& libraries) {
  for (const proto::StaticLibrary* library : libraries) {
    const proto::StaticLibraryManifest& manifest = library->manifest();
    std::vector<runtime::Dependency> dependencies;
    for (const proto::RequiredLibrary& required : manifest.required_libraries()) {
      dependencies.push_back({required.soname(), required.package(), {manifest.backend()}, {}});
    }
    std::vector<void*> none;
    runtime::Status s = runtime::CheckCpu(manifest.target_triple(), manifest.target_features());
    if (s.ok()) s = runtime::LoadDependencies(dependencies, &none);
    if (!s.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("function ", manifest.functions(0).symbol(), " of ", manifest.backend(), " ", s.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

struct JitCode::Impl {
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
  orc::JITDylib* dylib = nullptr;
  int64_t code_bytes = 0;

  // What the session reported while something failed: the error that a lookup returns says only which symbols failed.
  std::mutex mutex;
  std::string reports;

  ~Impl() {
    if (session == nullptr) return;
    if (llvm::Error error = session->endSession()) llvm::consumeError(std::move(error));
    layer = nullptr;
  }

  absl::Status Fail(llvm::Error error) {
    std::string text = llvm::toString(std::move(error));
    std::lock_guard<std::mutex> lock(mutex);
    if (!reports.empty()) text = absl::StrCat(reports, "; ", text);
    return absl::FailedPreconditionError(absl::StrCat("JIT: ", text));
  }

  absl::Status Start() {
    auto control = orc::SelfExecutorProcessControl::Create();
    if (!control) return Fail(control.takeError());
    session = std::make_unique<orc::ExecutionSession>(std::move(*control));
    session->setErrorReporter([this](llvm::Error error) {
      std::lock_guard<std::mutex> lock(mutex);
      absl::StrAppend(&reports, reports.empty() ? "" : "; ", llvm::toString(std::move(error)));
    });
    layer = std::make_unique<orc::ObjectLinkingLayer>(*session);
    dylib = &session->createBareJITDylib("main");
    return absl::OkStatus();
  }

  absl::Status Define(const std::set<std::string>& undefined) {
    orc::SymbolMap symbols;
    for (const std::string& name : undefined) {
      void* address = FindExternalSymbol(name);
      if (address == nullptr) {
        return absl::FailedPreconditionError(
            absl::StrCat("JIT: this daemon has no ", name, " (the backend's runtime is not linked into it)"));
      }
      symbols[session->intern(name)] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    }
    if (llvm::Error error = dylib->define(orc::absoluteSymbols(std::move(symbols)))) return Fail(std::move(error));
    return absl::OkStatus();
  }

  // Adds all objects; collects what none of them defines.
  absl::Status Add(const proto::StaticLibrary& library, std::set<std::string>* defined,
                   std::set<std::string>* undefined) {
    const std::string& triple = library.manifest().target_triple();
    for (const proto::ObjectFile& object : library.objects()) {
      INLAY_ASSIGN_OR_RETURN(artifact::ObjectSymbols symbols,
                             artifact::ReadObject(object.data(), triple.substr(0, triple.find('-'))));
      defined->insert(symbols.strong.begin(), symbols.strong.end());
      defined->insert(symbols.weak.begin(), symbols.weak.end());
      undefined->insert(symbols.undefined.begin(), symbols.undefined.end());
      code_bytes += (symbols.loaded_bytes + 4095) / 4096 * 4096;
      // JITLink keeps no pointer into the buffer once it has linked, which is before Load returns; but it wants it
      // aligned, which a copy is.
      auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object.data(), object.name());
      if (llvm::Error error = layer->add(*dylib, std::move(buffer))) return Fail(std::move(error));
    }
    return absl::OkStatus();
  }

  // Links everything now, so that errors show here and nothing is left to do at the first run.
  absl::Status LinkAll(const std::vector<const proto::StaticLibrary*>& libraries) {
    orc::SymbolLookupSet wanted;
    for (const proto::StaticLibrary* library : libraries) {
      for (const proto::PrimitiveFunction& f : library->manifest().functions()) {
        wanted.add(session->intern(f.symbol() + "_run"));
        if (!f.has_state()) continue;
        wanted.add(session->intern(f.symbol() + "_init"));
        wanted.add(session->intern(f.symbol() + "_destroy"));
      }
    }
    auto found = session->lookup(orc::makeJITDylibSearchOrder(dylib), std::move(wanted));
    if (!found) return Fail(found.takeError());
    return absl::OkStatus();
  }
};

JitCode::JitCode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JitCode::~JitCode() = default;

absl::StatusOr<std::unique_ptr<JitCode>> JitCode::Load(const std::vector<const proto::StaticLibrary*>& libraries) {
  INLAY_RETURN_IF_ERROR(artifact::CheckStaticLibraries(libraries));
  INLAY_RETURN_IF_ERROR(CheckMachine(libraries));
  auto impl = std::make_unique<Impl>();
  INLAY_RETURN_IF_ERROR(impl->Start());
  std::set<std::string> defined, undefined;
  for (const proto::StaticLibrary* library : libraries) {
    INLAY_RETURN_IF_ERROR(impl->Add(*library, &defined, &undefined));
  }
  for (const std::string& symbol : defined) undefined.erase(symbol);
  undefined.erase("_GLOBAL_OFFSET_TABLE_");  // JITLink makes its own
  INLAY_RETURN_IF_ERROR(impl->Define(undefined));
  INLAY_RETURN_IF_ERROR(impl->LinkAll(libraries));
  return std::unique_ptr<JitCode>(new JitCode(std::move(impl)));
}

absl::StatusOr<void*> JitCode::Lookup(absl::string_view symbol) const {
  auto found = impl_->session->lookup({impl_->dylib}, llvm::StringRef(symbol.data(), symbol.size()));
  if (!found) {
    llvm::consumeError(found.takeError());
    return absl::NotFoundError(absl::StrCat("JIT: no symbol ", symbol));
  }
  return found->getAddress().toPtr<void*>();
}

int64_t JitCode::code_bytes() const { return impl_->code_bytes; }

}  // namespace inlay::jit
