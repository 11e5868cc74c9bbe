#include "core/collage/micro_batches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/collage/outline.h"
#include "core/ir/batch.h"
#include "core/ir/dim_expr.h"
#include "core/ir/structural_hash.h"
#include "core/target/x86_cpus.h"

namespace inlay::collage {
namespace {

constexpr int64_t kAlignment = 64;         // of what a partition is given
constexpr int64_t kMostMicroBatches = 64;  // a plan has so many times the calls
constexpr size_t kLongestRun = 256;        // partitions; bounds the time of the choice

// Microseconds a byte costs for each time that what a call touches is twice the near cache: convolutional networks of
// timm, one image and eight, on Zen 3.
constexpr double kMicrosPerByte = 14e-6;
// What one more call costs, and each thread beside the first, which waits for the others at its end: two on Zen 3, four
// on Emerald Rapids.
constexpr double kMicrosPerCall = 2, kMicrosPerThread = 9;

// Of a batch that is open and has no hint. One row would gain nothing, so fewer than are often sent: what goes one by
// one must pay for few rows.
constexpr int64_t kRowsOfSomeRun = 4;
// The part of its time that code for an open batch takes longer (images of known size, Zen 3: 2 to 40%, most 5 to 12).
constexpr double kOpenBatch = 0.1;
// Where a configuration leaves the threads to the machine and says nothing of its cores.
constexpr int kCoresOfSomeMachine = 8;
// What a run promises to gain is no gain below this.
constexpr double kCaution = 1.15;

constexpr double kNever = std::numeric_limits<double>::infinity();

// The best cut of the calls into runs, each with its number of rows: a shortest path.
class RowsChooser {
 public:
  RowsChooser(const std::vector<BatchedCall>& calls, const std::vector<int>& last_use, int64_t batch,
              const BatchMachine& machine, bool is_open)
      : calls_(calls),
        last_use_(last_use),
        batch_(batch),
        machine_(machine),
        fewest_parts_(is_open ? std::max<int64_t>(batch, 2) : 2),
        most_parts_(is_open ? batch : std::min(batch, kMostMicroBatches)),
        writer_(last_use.size(), -1) {
    for (size_t i = 0; i < calls.size(); ++i) {
      for (const BatchedCall::Access& write : calls[i].writes) writer_[write.value] = static_cast<int>(i);
    }
    ends_.resize(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      for (const BatchedCall::Access& write : calls[i].writes) {
        const size_t last = last_use[write.value];
        if (last < calls.size()) ends_[last].push_back({write, static_cast<int>(i)});
      }
    }
  }

  std::vector<int64_t> Run() {
    const size_t n = calls_.size();
    best_.assign(n + 1, {kNever, 0, batch_});
    best_[0].cost = 0;
    for (size_t first = 0; first < n; ++first) {
      Offer(first, first + 1, batch_, Whole(calls_[first]));
      for (int64_t count = fewest_parts_; count <= most_parts_; ++count) {
        if (batch_ % count == 0) OfferRuns(first, batch_ / count);
      }
    }
    std::vector<int64_t> chosen(n, batch_);
    for (size_t end = n; end > 0; end = best_[end].first) {
      for (size_t i = best_[end].first; i < end; ++i) chosen[i] = best_[end].rows;
    }
    return chosen;
  }

 private:
  struct Best {
    double cost;
    size_t first;  // of the last run
    int64_t rows;
  };
  struct Written {
    BatchedCall::Access access;
    int by;
  };

  void Offer(size_t first, size_t end, int64_t rows, double cost) {
    if (best_[first].cost + cost < best_[end].cost) best_[end] = {best_[first].cost + cost, first, rows};
  }

  double Far(double bytes) const { return std::max(0.0, std::log2(bytes / static_cast<double>(machine_.near_bytes))); }

  static double RowBytes(const BatchedCall& call) {
    double bytes = 0;
    for (const auto* accesses : {&call.reads, &call.writes}) {
      for (const BatchedCall::Access& access : *accesses) bytes += static_cast<double>(access.row_bytes);
    }
    return bytes;
  }

  // Calls, and the weights that each reads.
  double Fixed(const BatchedCall& call, int64_t rows) const {
    const auto weights = static_cast<double>(call.weight_bytes);
    const double touched = weights + static_cast<double>(rows) * RowBytes(call);
    const double per_call = kMicrosPerCall + kMicrosPerThread * (machine_.threads - 1);
    return static_cast<double>(batch_ / rows) * (per_call + weights * (1 + Far(touched)) * kMicrosPerByte);
  }

  // What moving a value costs a call: it is as far as all that the call touches at once, or, where all rows lie between
  // the value's two sides (`whole`), all that it ever touches.
  double Moving(const BatchedCall& call, const BatchedCall::Access& access, int64_t rows, bool whole) const {
    const double touched = static_cast<double>(whole ? batch_ : rows) * RowBytes(call);
    return static_cast<double>(batch_) * static_cast<double>(access.row_bytes) * Far(touched) * kMicrosPerByte;
  }

  double Whole(const BatchedCall& call) const {
    double cost = Fixed(call, batch_) + call.open_us;
    for (const auto* accesses : {&call.reads, &call.writes}) {
      for (const BatchedCall::Access& access : *accesses) cost += Moving(call, access, batch_, /*whole=*/true);
    }
    return cost;
  }

  // Every run from `first` on.
  void OfferRuns(size_t first, int64_t rows) {
    double cost = 0;
    int unaligned = 0;  // values that cross the run's end, whose parts would not be aligned
    const size_t longest = std::min(calls_.size(), first + kLongestRun);
    for (size_t i = first; i < longest && calls_[i].separable; ++i) {
      const BatchedCall& call = calls_[i];
      cost += Fixed(call, rows);
      for (const BatchedCall::Access& read : call.reads) {
        const bool whole = writer_[read.value] < static_cast<int>(first);
        if (whole && !Aligned(read, rows)) return;
        cost += Moving(call, read, rows, whole);
      }
      for (const BatchedCall::Access& write : call.writes) {
        unaligned += !Aligned(write, rows);
        cost += Moving(call, write, rows, /*whole=*/true);
      }
      for (const Written& last : ends_[i]) {
        if (last.by < static_cast<int>(first)) continue;
        const BatchedCall& writer = calls_[last.by];
        unaligned -= !Aligned(last.access, rows);
        cost += Moving(writer, last.access, rows, /*whole=*/false) - Moving(writer, last.access, rows, /*whole=*/true);
      }
      if (unaligned == 0) Offer(first, i + 1, rows, kCaution * cost);
    }
  }

  static bool Aligned(const BatchedCall::Access& access, int64_t rows) {
    return access.row_bytes * rows % kAlignment == 0;
  }

  const std::vector<BatchedCall>& calls_;
  const std::vector<int>& last_use_;
  const int64_t batch_;
  const BatchMachine machine_;
  const int64_t fewest_parts_, most_parts_;
  std::vector<int> writer_;                 // by value
  std::vector<std::vector<Written>> ends_;  // by call: values that it is the last to use
  std::vector<Best> best_;
};

// The leading extent of main's first input that has several axes; 1: there is none.
ir::Dim BatchOf(const ir::Function& main) {
  const size_t inputs = main.params.size() - main.attrs.IntOr("num_lifted_params", 0);
  for (size_t i = 0; i < inputs; ++i) {
    if (!main.params[i]->type.is_tensor()) return 1;
    const ir::TensorType& type = main.params[i]->type.tensor();
    if (type.rank() >= 2) return type.dims[0];
  }
  return 1;
}

// `missing`: what a symbol without a hint is.
int64_t RowsOf(const ir::Dim& batch, const target::CompilationConfig& config, int64_t missing) {
  auto hint = [&](const std::string& name) { return config.DimHint(name, missing); };
  return ir::EvaluateDim(batch, hint).value_or(1);
}

class BatchSplitter {
 public:
  explicit BatchSplitter(Partitioned* partitioned)
      : partitioned_(*partitioned),
        main_(partitioned->module.functions.at("main")),
        batch_(BatchOf(main_)),
        num_rows_(RowsOf(batch_, partitioned->module.config(), kRowsOfSomeRun)),
        estimated_rows_(RowsOf(batch_, partitioned->module.config(), target::CompilationConfig::kDefaultDimHint)) {
    for (size_t i = 0; i < partitioned_.partitions.size(); ++i) {
      index_of_[partitioned_.partitions[i].function] = static_cast<int>(i);
    }
  }

  void Run() {
    if (num_rows_ < 2 || !Describe()) return;
    const std::vector<int64_t> rows = ChooseRows(calls_, last_use_, num_rows_, Machine(), !batch_.is_static());
    for (size_t i = 0; i < calls_.size(); ++i) {
      // Where one row is possible, several are; if not, no run is cut in two: its parts need not be aligned there.
      if (rows[i] < num_rows_ && !ForRows(CalleeOf(binding_of_[i]), rows[i]).has_value()) return;
    }
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (rows[i] < num_rows_) Rewrite(&main_.body.bindings[binding_of_[i]], rows[i]);
    }
    ListAnew();
  }

 private:
  // What main's calls read and write; false where main is more than calls of partitions.
  bool Describe() {
    for (size_t b = 0; b < main_.body.bindings.size(); ++b) {
      const ir::Binding& binding = main_.body.bindings[b];
      const auto partition = index_of_.find(binding.callee);
      if (binding.kind == ir::Binding::Kind::kTupleGetItem) continue;  // written by the call that makes the tuple
      if (binding.kind != ir::Binding::Kind::kCallFunction || partition == index_of_.end()) return false;
      BatchedCall call;
      const ir::Function& callee = CalleeOf(b);
      const PartitionInfo& info = partitioned_.partitions[partition->second];
      call.separable = ForRows(callee, 1).has_value() && IsStatic(ForRows(callee, 1)->function) && TakesFewerRows(info);
      if (!batch_.is_static()) call.open_us = kOpenBatch * info.cost_us * PartOfEstimate(num_rows_);
      const std::vector<int64_t>& constants = callee.attrs.Ints(backend::kConstantParams);
      for (size_t i = 0; i < binding.args.size(); ++i) {
        const ir::Operand& arg = binding.args[i];
        if (std::find(constants.begin(), constants.end(), static_cast<int64_t>(i)) != constants.end()) {
          if (arg.tensor_type().is_static()) call.weight_bytes += arg.tensor_type().NumBytes();
        } else if (arg.is_var() && HasBatch(arg.type())) {
          const int value = ValueOf(*arg.var);
          last_use_[value] = static_cast<int>(calls_.size());
          call.reads.push_back({value, RowBytes(arg.type())});
        }
      }
      AddWrites(b, &call);
      binding_of_.push_back(b);
      calls_.push_back(std::move(call));
    }
    for (const ir::Operand& result : main_.body.results) {
      if (result.is_var() && HasBatch(result.type())) last_use_[ValueOf(*result.var)] = static_cast<int>(calls_.size());
    }
    return true;
  }

  void AddWrites(size_t b, BatchedCall* call) {
    const ir::VarPtr& var = main_.body.bindings[b].var;
    auto add = [&](const ir::Var& value) {
      if (HasBatch(value.type)) call->writes.push_back({ValueOf(value), RowBytes(value.type)});
    };
    if (var->type.is_tensor()) return add(*var);
    for (size_t i = b + 1; i < main_.body.bindings.size(); ++i) {
      const ir::Binding& item = main_.body.bindings[i];
      if (item.kind != ir::Binding::Kind::kTupleGetItem || item.args[0].var != var) break;
      add(*item.var);
    }
  }

  int ValueOf(const ir::Var& var) {
    const auto [found, added] = value_of_.emplace(&var, static_cast<int>(last_use_.size()));
    if (added) last_use_.push_back(-1);
    return found->second;
  }

  bool HasBatch(const ir::Type& type) const {
    return type.is_tensor() && type.tensor().rank() > 0 && type.tensor().dims[0] == batch_;
  }
  // Rows of a size that a run decides would not be aligned in every one.
  static bool IsStatic(const ir::Function& function) {
    const auto is_static = [](const ir::Type& type) { return type.is_tensor() && type.tensor().is_static(); };
    return std::all_of(function.params.begin(), function.params.end(),
                       [&](const ir::VarPtr& param) { return is_static(param->type); }) &&
           std::all_of(function.body.results.begin(), function.body.results.end(),
                       [&](const ir::Operand& result) { return is_static(result.type()); });
  }
  // 0: a run decides.
  static int64_t RowBytes(const ir::Type& type) {
    ir::TensorType row = type.tensor();
    row.dims[0] = 1;
    return row.is_static() ? row.NumBytes() : 0;
  }

  const ir::Function& CalleeOf(size_t b) const {
    return partitioned_.module.functions.at(main_.body.bindings[b].callee);
  }

  const std::optional<ir::Rebatched>& ForRows(const ir::Function& callee, int64_t rows) {
    const auto [found, added] = for_rows_.try_emplace({&callee, rows});
    if (added) found->second = ir::WithBatch(callee, callee.attrs.Ints(backend::kConstantParams), batch_, rows);
    return found->second;
  }

  // A hidden backend's kernels are somebody's for just these shapes.
  bool TakesFewerRows(const PartitionInfo& info) const {
    const auto* backend = backend::BackendRegistry::Global().Find(target::BackendOfVariant(info.backend));
    return backend != nullptr && !backend->is_hidden(partitioned_.module.config().target());
  }

  double PartOfEstimate(int64_t rows) const { return static_cast<double>(rows) / static_cast<double>(estimated_rows_); }

  BatchMachine Machine() const {
    const target::CompilationConfig& config = partitioned_.module.config();
    int threads = config.num_threads;
    if (threads == 0 && !absl::SimpleAtoi(config.target().attr("num-cores"), &threads)) threads = kCoresOfSomeMachine;
    return {target::X86CpuCore(config.target().attr("mcpu", "x86-64")).l2_bytes * threads, threads};
  }

  void Rewrite(ir::Binding* call, int64_t rows) {
    const std::string whole = call->callee;
    const ir::Function& fewer = ForRows(partitioned_.module.functions.at(whole), rows)->function;
    const std::string name = PartitionName(fewer, partitioned_.module.config());
    const auto [found, added] = index_of_.emplace(name, static_cast<int>(partitioned_.partitions.size()));
    if (added) {
      partitioned_.module.functions[name] = ir::Canonicalize(fewer);
      PartitionInfo info = partitioned_.partitions[index_of_.at(whole)];
      info.function = name;
      info.call_sites = 0;
      info.cost_us *= PartOfEstimate(rows);
      absl::StrAppend(&info.why, "; ", rows, " of ", batch_.ToString(), " rows at a time");
      partitioned_.partitions.push_back(std::move(info));
    }
    // Of an open batch, those of one row.
    partitioned_.partitions[found->second].call_sites += batch_.is_static() ? static_cast<int>(num_rows_ / rows) : 1;
    --partitioned_.partitions[index_of_.at(whole)].call_sites;
    call->callee = name;
    if (batch_.is_static()) {
      call->attrs.Set(ir::kMicroBatches, num_rows_ / rows);
    } else {
      call->attrs.Set(ir::kMicroBatches, batch_.symbol());
    }
    partitioned_.has_micro_batches = true;
  }

  // Without those that nobody calls any more; in order of first call, transform_params' before main's.
  void ListAnew() {
    std::map<std::string, size_t> first_call;
    for (const ir::Binding& call : main_.body.bindings) first_call.emplace(call.callee, first_call.size() + 1);
    auto order = [&](const PartitionInfo& info) {
      const auto found = first_call.find(info.function);
      return found == first_call.end() ? 0 : found->second;
    };
    std::vector<PartitionInfo> called;
    for (PartitionInfo& info : partitioned_.partitions) {
      if (info.call_sites > 0) {
        called.push_back(std::move(info));
      } else {
        partitioned_.module.functions.erase(info.function);
      }
    }
    std::stable_sort(called.begin(), called.end(),
                     [&](const PartitionInfo& a, const PartitionInfo& b) { return order(a) < order(b); });
    partitioned_.partitions = std::move(called);
  }

  Partitioned& partitioned_;
  ir::Function& main_;
  const ir::Dim batch_;
  const int64_t num_rows_;               // that the choice counts with
  const int64_t estimated_rows_;         // that estimates did
  std::map<std::string, int> index_of_;  // partitions by function
  std::map<std::pair<const ir::Function*, int64_t>, std::optional<ir::Rebatched>> for_rows_;
  std::vector<BatchedCall> calls_;
  std::vector<size_t> binding_of_;  // by call
  std::unordered_map<const ir::Var*, int> value_of_;
  std::vector<int> last_use_;  // by value
};

}  // namespace

std::vector<int64_t> ChooseRows(const std::vector<BatchedCall>& calls, const std::vector<int>& last_use, int64_t batch,
                                const BatchMachine& machine, bool is_open) {
  return RowsChooser(calls, last_use, batch, machine, is_open).Run();
}

void UseMicroBatches(Partitioned* partitioned) {
  const target::CompilationConfig& config = partitioned->module.config();
  const auto main = partitioned->module.functions.find("main");
  if (config.runtime.kind == target::RuntimeKind::kCrt || config.target().kind != "llvm" ||
      main == partitioned->module.functions.end()) {
    return;
  }
  BatchSplitter(partitioned).Run();
}

}  // namespace inlay::collage
