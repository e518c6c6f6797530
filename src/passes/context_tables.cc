#include "passes/context_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "passes/edit.h"

namespace milwright {
namespace {

// A tensor seen along one axis: element (o, row, i) of [outer, rows, inner].
struct Along {
  int64_t outer = 1;
  int64_t rows = 1;
  int64_t inner = 1;

  Along(const Shape& shape, size_t axis) : rows(shape[axis]) {
    for (size_t i = 0; i < shape.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  }
  [[nodiscard]] int64_t At(int64_t o, int64_t row, int64_t i) const { return (o * rows + row) * inner + i; }
};

// Copies the rows that both have.
Result<Tensor> WithRows(const Tensor& table, size_t axis, int64_t rows) {
  Shape shape = table.shape();
  shape[axis] = rows;
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({table.dtype(), shape}));
  const Along from(table.shape(), axis);
  const Along to(shape, axis);
  const bool integer = !IsFloat(table.dtype());
  for (int64_t o = 0; o < from.outer; ++o) {
    for (int64_t row = 0; row < std::min(from.rows, rows); ++row) {
      for (int64_t i = 0; i < from.inner; ++i) {
        if (integer) {
          result.SetInt(to.At(o, row, i), table.GetInt(from.At(o, row, i)));
        } else {
          result.SetDouble(to.At(o, row, i), table.GetDouble(from.At(o, row, i)));
        }
      }
    }
  }
  return result;
}

// Fills the rows behind those of `table` in `result` with f(o, row, i).
template <typename F>
void FillNew(Tensor& result, const Tensor& table, size_t axis, F f) {
  const Along to(result.shape(), axis);
  for (int64_t o = 0; o < to.outer; ++o) {
    for (int64_t row = table.shape()[axis]; row < to.rows; ++row) {
      for (int64_t i = 0; i < to.inner; ++i) result.SetDouble(to.At(o, row, i), f(o, row, i));
    }
  }
}

// Rows that are all equal, or that count.
std::optional<Tensor> GrowLinear(const Tensor& table, size_t axis, Tensor result) {
  const Along from(table.shape(), axis);
  const auto at = [&](int64_t o, int64_t row, int64_t i) { return table.GetDouble(from.At(o, row, i)); };
  for (int64_t o = 0; o < from.outer; ++o) {
    for (int64_t i = 0; i < from.inner; ++i) {
      const double step = from.rows > 1 ? at(o, 1, i) - at(o, 0, i) : 0;
      if (step != 0 && (from.rows < 3 || step != std::round(step))) return std::nullopt;
      for (int64_t row = 1; row < from.rows; ++row) {
        if (!(at(o, row, i) == at(o, 0, i) + static_cast<double>(row) * step)) return std::nullopt;
      }
    }
  }
  FillNew(result, table, axis, [&](int64_t o, int64_t row, int64_t i) {
    const double step = from.rows > 1 ? at(o, 1, i) - at(o, 0, i) : 0;
    return at(o, 0, i) + static_cast<double>(row) * step;
  });
  // Numbers beyond what the type holds would not count on.
  const Along to(result.shape(), axis);
  for (int64_t i = 0; i < to.inner && to.rows > 1; ++i) {
    const double step = result.GetDouble(to.At(0, 1, i)) - result.GetDouble(to.At(0, 0, i));
    const double last = result.GetDouble(to.At(0, 0, i)) + static_cast<double>(to.rows - 1) * step;
    if (result.GetDouble(to.At(0, to.rows - 1, i)) != last) return std::nullopt;
  }
  return result;
}

// A mask over [positions, positions] with one step: what lies at j <= i + s differs from what lies behind it.
std::optional<Tensor> GrowCausal(const Tensor& table, size_t axis_i, size_t axis_j, const Shape& shape) {
  const int64_t rows = table.shape()[axis_i];
  if (rows != table.shape()[axis_j] || shape[axis_i] != shape[axis_j] || rows < 3) return std::nullopt;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != axis_i && axis != axis_j && shape[axis] != 1) return std::nullopt;
  }
  const auto at = [&](int64_t i, int64_t j) { return table.GetDouble(i * rows + j); };
  const double seen = at(rows - 1, 0);
  const double hidden = at(0, rows - 1);
  if (seen == hidden) return std::nullopt;
  for (const int64_t step : {0, -1}) {
    bool fits = true;
    for (int64_t i = 0; i < rows && fits; ++i) {
      for (int64_t j = 0; j < rows && fits; ++j) fits = at(i, j) == (j <= i + step ? seen : hidden);
    }
    if (!fits) continue;
    auto result = Tensor::Zeros({table.dtype(), shape});
    if (!result.ok()) return std::nullopt;
    const int64_t size = shape[axis_i];
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) result->SetDouble(i * size + j, j <= i + step ? seen : hidden);
    }
    return *std::move(result);
  }
  return std::nullopt;
}

// One way to compute a rotary table: position * theta^(-2k/d) / factor, in doubles or in floats as PyTorch does.
struct Rotary {
  bool sine = false;
  bool floats = false;
  bool paired = false;  ///< frequencies (0 0 1 1 ...) rather than (0 1 ... 0 1 ...)
  double theta = 0;
  double factor = 1;
  double scale = 1;
  int64_t frequencies = 1;
  int64_t moving = 1;                    ///< the frequencies from there on are zero (proportional scaling, families.md)
  DataType precision = DataType::kFp32;  ///< that of the values, which may be stored in a wider type

  [[nodiscard]] double At(int64_t row, int64_t column) const {
    return Tensor::Scalar(precision, Unrounded(row, column)).GetDouble(0);
  }

 private:
  [[nodiscard]] double Unrounded(int64_t row, int64_t column) const {
    const int64_t k = paired ? column / 2 : column % frequencies;
    if (k >= moving) return sine ? 0 : scale;
    const double exponent = static_cast<double>(k) / static_cast<double>(frequencies);
    if (floats) {
      const float frequency = 1.0F / std::pow(static_cast<float>(theta), static_cast<float>(exponent));
      const float angle = static_cast<float>(row) * (frequency / static_cast<float>(factor));
      return static_cast<float>(sine ? std::sin(angle) : std::cos(angle)) * static_cast<float>(scale);
    }
    const double angle = static_cast<double>(row) * std::pow(theta, -exponent) / factor;
    return (sine ? std::sin(angle) : std::cos(angle)) * scale;
  }
};

// The narrowest type that holds every element of `table`.
DataType PrecisionOf(const Tensor& table) {
  for (const DataType type : {DataType::kBf16, DataType::kFp16}) {
    bool holds = true;
    for (int64_t i = 0; i < table.size() && holds; ++i) {
      holds = Tensor::Scalar(type, table.GetDouble(i)).GetDouble(0) == table.GetDouble(i);
    }
    if (holds) return type;
  }
  return table.dtype();
}

// Whether `rotary` gives every element of `table`: to the last bit, or (`loose`) but for its last place.
bool Reproduces(const Rotary& rotary, const Tensor& table, const Along& view, bool loose) {
  const int mantissa = rotary.precision == DataType::kBf16 ? 8 : rotary.precision == DataType::kFp16 ? 11 : 24;
  for (int64_t row = view.rows; row-- > 0;) {  // high positions tell frequencies apart first
    for (int64_t column = 0; column < view.inner; ++column) {
      const double have = table.GetDouble(view.At(0, row, column));
      const double want = rotary.At(row, column);
      if (have == want) continue;
      if (!loose) return false;
      // One unit in the last place of the element, and what fp32 angles are off by.
      const double angle_error = static_cast<double>(row) * std::ldexp(1, -23) * rotary.scale;
      const double unit = std::max(std::abs(have), std::ldexp(1, -14)) * std::ldexp(1, 1 - mantissa);
      if (!(std::abs(have - want) <= unit + angle_error)) return false;
    }
  }
  return true;
}

// Bases that configurations use: one or two leading digits and zeros.
std::vector<double> Bases(double estimate) {
  std::vector<double> bases;
  if (!(estimate > 10) || estimate > 1e9) return bases;
  for (int64_t unit = 1; unit <= 1'000'000'000; unit *= 10) {
    for (int64_t digits = 1; digits < 100; ++digits) {
      const auto base = static_cast<double>(digits * unit);
      const bool near = std::abs(base - estimate) <= 0.3 * estimate;
      if (near && std::ranges::find(bases, base) == bases.end()) bases.push_back(base);
    }
  }
  std::ranges::sort(bases, {}, [estimate](double base) { return std::abs(base - estimate); });
  return bases;
}

// One digit and zeros.
bool IsRound(double base) {
  while (base >= 10 && std::fmod(base, 10) == 0) base /= 10;
  return base < 10;
}

std::optional<Rotary> FindRotary(const Tensor& table, size_t axis) {
  const Along view(table.shape(), axis);
  const bool known_type = table.dtype() == DataType::kFp16 || table.dtype() == DataType::kFp32;
  if (!known_type || view.outer != 1 || view.rows < 8 || view.inner < 2) return std::nullopt;
  const auto at = [&](int64_t row, int64_t column) { return table.GetDouble(view.At(0, row, column)); };
  Rotary rotary;
  rotary.sine = at(0, 0) == 0;
  rotary.precision = PrecisionOf(table);
  if (!rotary.sine) rotary.scale = at(0, 0);
  if (!(rotary.scale > 0)) return std::nullopt;
  // The angle of one position in `column`, from the last row before the function turns; nothing when it hardly moves.
  const auto angle = [&](int64_t column) -> std::optional<double> {
    int64_t best = 1;
    for (int64_t row = 1; row < view.rows; ++row) {
      const double value = at(row, column) / rotary.scale;
      if (rotary.sine ? value > 0.9 : value < 0.3) break;
      best = row;
    }
    const double value = at(best, column) / rotary.scale;
    if (!(std::abs(value) <= 1)) return std::nullopt;
    const double turned = rotary.sine ? std::asin(value) : std::acos(value);
    return turned > (rotary.sine ? 1e-3 : 0.3) ? std::optional(turned / static_cast<double>(best)) : std::nullopt;
  };
  for (const int layout : {0, 1, 2}) {
    // Halves (0 1 .. 0 1 ..), pairs (0 0 1 1 ..), or each frequency once.
    rotary.paired = layout == 1;
    if (layout < 2 && view.inner % 2 != 0) continue;
    rotary.frequencies = layout < 2 ? view.inner / 2 : view.inner;
    if (rotary.frequencies < 2) continue;
    const auto first = angle(0);
    if (!first.has_value()) continue;
    rotary.factor = std::max(1.0, std::round(1 / *first));
    double estimate = 0;
    for (int64_t k = rotary.frequencies - 1; k > 0 && estimate == 0; --k) {
      const auto slow = angle(rotary.paired ? 2 * k : k);
      if (!slow.has_value()) continue;
      const double power = static_cast<double>(rotary.frequencies) / static_cast<double>(k);
      estimate = std::pow(1 / (*slow * rotary.factor), power);
    }
    // Columns at the end that stand still: of frequency zero, if they are not only slow.
    int64_t moving = rotary.frequencies;
    const auto still = [&](int64_t k) {
      const int64_t column = rotary.paired ? 2 * k : k;
      for (int64_t row = 1; row < view.rows; ++row) {
        if (at(row, column) != at(0, column)) return false;
      }
      return true;
    };
    while (moving > 1 && still(moving - 1)) --moving;
    for (const auto& [loose, count] : {std::pair(false, rotary.frequencies), std::pair(true, rotary.frequencies),
                                       std::pair(false, moving), std::pair(true, moving)}) {
      std::vector<Rotary> fitting;
      for (const double base : Bases(estimate)) {
        for (const bool floats : {false, true}) {
          Rotary candidate = rotary;
          candidate.theta = base;
          candidate.floats = floats;
          candidate.moving = count;
          if (!Reproduces(candidate, table, view, loose)) continue;
          fitting.push_back(candidate);
          break;
        }
      }
      // Bases that give the same rows so far part further on: the round one, if only one is round.
      std::vector<Rotary> round;
      std::ranges::copy_if(fitting, std::back_inserter(round), [](const Rotary& r) { return IsRound(r.theta); });
      if (round.size() == 1) return round.front();
      if (fitting.size() == 1) return fitting.front();
      if (!fitting.empty()) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<Literal> ResizeTable(const Literal& table, const Shape& shape) {
  const Shape old = table.tensor.shape();
  if (!table.type.IsTensor() || old.size() != shape.size() || table.tensor.dtype() == DataType::kString) {
    return Refuse("it is no table of numbers");
  }
  Tensor tensor = table.tensor;
  std::vector<size_t> grown;
  for (size_t axis = 0; axis < old.size(); ++axis) {
    if (shape[axis] < old[axis]) {
      MW_ASSIGN_OR_RETURN(tensor, WithRows(tensor, axis, shape[axis]));
    } else if (shape[axis] > old[axis]) {
      grown.push_back(axis);
    }
  }
  if (grown.size() == 2) {
    if (auto mask = GrowCausal(tensor, grown[0], grown[1], shape)) return Literal(*std::move(mask));
  }
  for (const size_t axis : grown) {
    MW_ASSIGN_OR_RETURN(Tensor larger, WithRows(tensor, axis, shape[axis]));
    if (auto linear = GrowLinear(tensor, axis, larger)) {
      tensor = *std::move(linear);
    } else if (const auto rotary = FindRotary(tensor, axis)) {
      FillNew(larger, tensor, axis,
              [&rotary](int64_t /*outer*/, int64_t row, int64_t column) { return rotary->At(row, column); });
      tensor = std::move(larger);
    } else {
      return Refuse(fmt::format(
          "it has {} rows and would need {}: it holds neither equal rows, counting numbers, a causal mask nor cosines "
          "or sines of position * theta^(-2j/d), so that the rows to add are not known",
          old[axis], shape[axis]));
    }
  }
  return Literal(std::move(tensor));
}

}  // namespace milwright
