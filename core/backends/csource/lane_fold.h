// LaneFold: a fold (sum, maximum) over many values in as many accumulators as make vector instructions of it. The order
// of a floating sum is then fixed by the source, not by what a compiler is allowed to do.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_LANE_FOLD_H_
#define INLAY_CORE_BACKENDS_CSOURCE_LANE_FOLD_H_

#include <functional>
#include <string>

#include "core/backends/csource/kernel_emitter.h"

namespace inlay::csource {

class LaneFold {
 public:
  using Fold = std::function<Expr(const Expr&, const Expr&)>;
  // Declares the accumulators. `run`: how many values one Run has at least; short ones take a single accumulator.
  LaneFold(KernelEmitter* e, ir::DType dtype, int64_t run, const Expr& start, Fold fold)
      : e_(e), dtype_(ComputeDType(dtype)), fold_(std::move(fold)), name_(e->Fresh("acc")) {
    lanes_ = e->plain() || run < 2 * e->Lanes(dtype_) ? 1 : 2 * e->Lanes(dtype_);
    e_->c().Line(StorageType(dtype_), " ", name_, "[", lanes_, "];");
    e_->For(0, lanes_, [&](const Expr& l) { Set(l, start); });
  }

  // Folds value(j) for each j of [0, n). `value` may store as well.
  void Run(int64_t n, const std::function<Expr(const Expr&)>& value) {
    if (lanes_ == 1) {
      e_->For(0, n, [&](const Expr& j) { Add(0, value(j)); });
      return;
    }
    const int64_t whole = n / lanes_ * lanes_;
    e_->For(
        0, whole,
        [&](const Expr& j) { e_->For(0, lanes_, [&](const Expr& l) { Add(l, value(e_->LetIndex(j + l))); }, 1, true); },
        lanes_);
    if (whole < n) e_->For(whole, n, [&](const Expr& j) { Add(0, value(j)); });
  }

  // The result, as a name.
  Expr Total() {
    const std::string total = e_->Fresh("total");
    e_->c().Line(StorageType(dtype_), " ", total, " = ", name_, "[0];");
    if (lanes_ > 1) {
      e_->For(1, lanes_, [&](const Expr& l) {
        e_->c().Line(total, " = ", Wrapped(dtype_, fold_(Expr::Name(total), At(Expr::Name(name_), l))).text, ";");
      });
    }
    return Expr::Name(total);
  }

 private:
  void Set(const Expr& lane, const Expr& value) { e_->c().Line(name_, "[", lane.text, "] = ", value.text, ";"); }
  void Add(const Expr& lane, const Expr& value) {
    Set(lane, Wrapped(dtype_, fold_(At(Expr::Name(name_), lane), value)));
  }

  KernelEmitter* e_;
  ir::DType dtype_;
  Fold fold_;
  std::string name_;
  int64_t lanes_;
};

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_LANE_FOLD_H_
