// gelu, both forms. Exporters emit the product 0.5 * x * (1 + ...) in every order and association, so this does not
// match patterns: it flattens trees of multiplications and compares the factors. See recognise_composites.cc.
#include <cmath>

#include "core/ir/literal.h"
#include "core/passes/recognise_composites.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;

// A product taken apart: scalar * factors[0] * factors[1] ...
struct Product {
  double scalar = 1;
  std::vector<Operand> factors;
};

class GeluMatcher {
 public:
  GeluMatcher(const Binding& root, const ir::DefUse& def_use)
      : root_(root), def_use_(def_use), tolerance_(Tolerance(root.var->type.tensor().dtype)) {}

  absl::optional<Composite> Run() {
    Product product;
    if (!Flatten(Operand(root_.var), true, &product) || product.factors.size() != 2 || !Near(product.scalar, 0.5)) {
      return absl::nullopt;
    }
    for (int i = 0; i < 2; ++i) {
      const Operand &x = product.factors[i], &gate = product.factors[1 - i];
      for (const char* approximate : {"none", "tanh"}) {
        if (x.type() == root_.var->type && IsGate(gate, x, approximate)) {
          return Composite{"gelu", {x}, {{"approximate", std::string(approximate)}}};
        }
      }
    }
    return absl::nullopt;
  }

 private:
  static double Tolerance(ir::DType dtype) {
    return dtype == ir::DType::kF16 || dtype == ir::DType::kBF16 ? 5e-3 : 1e-5;
  }
  bool Near(double value, double wanted) const { return std::fabs(value - wanted) <= tolerance_ * std::fabs(wanted); }

  // The binding of an inner value: used once, so that it vanishes with the root.
  const Binding* Inner(const Operand& operand, absl::string_view op) const {
    if (!operand.is_var() || def_use_.NumUses(operand.var) != 1 || def_use_.IsResult(operand.var)) return nullptr;
    const Binding* def = def_use_.Def(operand.var);
    return def != nullptr && def->IsCall(op) ? def : nullptr;
  }

  // False: too many factors, or too deep a tree, to be a gelu's (a chain of a million products must not take a stack).
  bool Flatten(const Operand& operand, bool is_root, Product* product, int depth = 0) const {
    if (product->factors.size() > 4 || depth > 8) return false;
    if (const absl::optional<double> literal = ir::SplatDouble(operand)) {
      product->scalar *= *literal;
      return true;
    }
    const Binding* mul = is_root ? &root_ : Inner(operand, "mul");
    if (mul != nullptr) {
      return Flatten(mul->args[0], false, product, depth + 1) && Flatten(mul->args[1], false, product, depth + 1);
    }
    if (const Binding* div = Inner(operand, "div")) {
      const absl::optional<double> divisor = ir::SplatDouble(div->args[1]);
      if (divisor.has_value()) {
        product->scalar /= *divisor;
        return Flatten(div->args[0], false, product, depth + 1);
      }
    }
    product->factors.push_back(operand);
    return true;
  }

  // Whether `operand` is 1 + the other thing, which is returned.
  const Operand* OnePlus(const Operand& operand) const {
    const Binding* sum = Inner(operand, "add");
    if (sum == nullptr) return nullptr;
    for (int i = 0; i < 2; ++i) {
      if (ir::SplatDouble(sum->args[i]) == 1.0) return &sum->args[1 - i];
    }
    return nullptr;
  }

  // 1 + erf(x / sqrt 2), or 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)).
  bool IsGate(const Operand& gate, const Operand& x, absl::string_view approximate) const {
    const Operand* function = OnePlus(gate);
    if (function == nullptr) return false;
    const Binding* call = Inner(*function, approximate == "none" ? "erf" : "tanh");
    Product argument;
    if (call == nullptr || !Flatten(call->args[0], false, &argument)) return false;
    if (approximate == "none") {
      return argument.factors.size() == 1 && argument.factors[0] == x && Near(argument.scalar, M_SQRT1_2);
    }
    if (!Near(argument.scalar, std::sqrt(2 / M_PI))) return false;
    if (argument.factors.size() == 1) return IsCubic(argument.factors[0], x);
    if (argument.factors.size() != 2) return false;
    // x * (1 + 0.044715 * x^2)
    for (int i = 0; i < 2; ++i) {
      const Operand* rest = OnePlus(argument.factors[1 - i]);
      if (argument.factors[i] == x && rest != nullptr && IsPower(*rest, x, 2)) return true;
    }
    return false;
  }

  // x + 0.044715 * x^3
  bool IsCubic(const Operand& operand, const Operand& x) const {
    const Binding* sum = Inner(operand, "add");
    if (sum == nullptr) return false;
    for (int i = 0; i < 2; ++i) {
      if (sum->args[i] == x && IsPower(sum->args[1 - i], x, 3)) return true;
    }
    return false;
  }

  // 0.044715 * x^n, as products or as pow.
  bool IsPower(const Operand& operand, const Operand& x, int n) const {
    Product product;
    if (!Flatten(operand, false, &product) || !Near(product.scalar, 0.044715)) return false;
    int degree = 0;
    for (const Operand& factor : product.factors) {
      const Binding* pow = Inner(factor, "pow");
      if (factor == x) {
        ++degree;
      } else if (pow != nullptr && pow->args[0] == x && ir::SplatDouble(pow->args[1]).has_value()) {
        degree += static_cast<int>(*ir::SplatDouble(pow->args[1]));
      } else {
        return false;
      }
    }
    return degree == n;
  }

  const Binding& root_;
  const ir::DefUse& def_use_;
  const double tolerance_;
};

}  // namespace

absl::optional<Composite> RecogniseGelu(const Binding& root, const ir::DefUse& def_use) {
  if (!ir::IsFloat(root.var->type.tensor().dtype)) return absl::nullopt;
  return GeluMatcher(root, def_use).Run();
}

}  // namespace inlay::passes
