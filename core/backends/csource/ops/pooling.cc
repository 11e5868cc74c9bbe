// max_pool and avg_pool: window by window, of each only the taps that meet the input.
#include "absl/strings/str_cat.h"
#include "core/backends/csource/kernel_emitter.h"
#include "core/backends/csource/op.h"
#include "core/backends/csource/windows.h"

namespace inlay::csource {
namespace {

using ir::DType;

Expr Least(DType dtype) {
  if (ir::IsFloat(dtype)) return Number(dtype, -INFINITY);
  if (!ir::IsSigned(dtype)) return Integer(dtype, 0);
  return Integer(dtype, INT64_MIN >> (64 - 8 * ir::ByteSize(dtype)));
}

class Pool {
 public:
  Pool(KernelEmitter& e, const Node& node)
      : e_(e), node_(node), x_(node.in(0)), w_(WindowsOf(node.attrs(), node.attrs().Ints("kernel"))) {}

  void Emit() {
    const Shape& out = node_.out().shape;
    const int rank = static_cast<int>(out.size());
    const double work = static_cast<double>(Product(out, 2, rank) * w_.taps());
    e_.Units(out[0] * out[1], work, [&](const Expr& unit) {
      Index at(rank, Expr(0));
      e_.Unravel(unit, Singles(out, 0, 2), &at);
      e_.Nest(Singles(out, 2, rank), &at, false, [&] { Window(at); });
    });
  }

 private:
  void Window(const Index& at) {
    const DType dtype = ComputeDType(x_.dtype);
    const bool average = node_.op == "avg_pool";
    std::vector<Expr> low, first, last;
    for (int d = 0; d < w_.rank(); ++d) {
      low.push_back(e_.LetIndex(at[d + 2] * Expr(w_.strides[d]) - Expr(w_.pads[d])));
      first.push_back(e_.LetIndex(Call("inlay_first_tap", {low[d], w_.dilations[d]})));
      last.push_back(e_.LetIndex(Call("inlay_last_tap", {low[d], w_.dilations[d], w_.kernel[d], x_.shape[d + 2]})));
    }
    const Expr total = Expr::Name(e_.Fresh("acc"));
    e_.c().Line(StorageType(dtype), " ", total.text, " = ", (average ? Number(dtype, 0) : Least(dtype)).text, ";");
    Index from = at;
    Taps(low, first, last, 0, &from, [&] {
      const Expr x = e_.Value(x_, from);
      const Expr max = Call(absl::StrCat("inlay_maximum_", std::string(ir::Name(dtype))), {total, x});
      e_.c().Line(total.text, " = ", (average ? total + x : max).text, ";");
    });
    if (!average) return e_.Store(node_.out(), at, total);
    Expr count = 1;
    for (int d = 0; d < w_.rank(); ++d) count = count * e_.LetIndex(Counted(d, low[d], first[d], last[d]));
    e_.Store(node_.out(), at, total / CastTo(StorageType(dtype), e_.LetIndex(count)));
  }

  // Padding counts where asked for; what a ceiled last window covers beyond it does not.
  Expr Counted(int d, const Expr& low, const Expr& first, const Expr& last) {
    if (!node_.attrs().BoolOr("count_include_pad", false)) return last - first;
    const int64_t end = x_.shape[d + 2] + w_.pads_end[d];
    return Call("inlay_last_tap", {low, w_.dilations[d], w_.kernel[d], Expr(end)});
  }

  void Taps(const std::vector<Expr>& low, const std::vector<Expr>& first, const std::vector<Expr>& last, int d,
            Index* from, const std::function<void()>& body) {
    if (d == w_.rank()) return body();
    e_.For(first[d], last[d], [&](const Expr& k) {
      (*from)[d + 2] = e_.LetIndex(low[d] + k * Expr(w_.dilations[d]));
      Taps(low, first, last, d + 1, from, body);
    });
  }

  KernelEmitter& e_;
  const Node& node_;
  const Tensor& x_;
  const Windows w_;
};

}  // namespace

void AddPooling(OpTable* ops) {
  for (const char* name : {"max_pool", "avg_pool"}) {
    (*ops)[name].kernel = [](KernelEmitter& e, const Node& node) { Pool(e, node).Emit(); };
    (*ops)[name].use = [](const Node&, int) { return Use::kMemory; };
  }
}

}  // namespace inlay::csource
