#include "mil/literal.h"

namespace milwright {

bool Literal::operator==(const Literal& other) const {
  if (type != other.type || elements != other.elements || entries != other.entries) return false;
  return !type.IsTensor() || tensor.BitEquals(other.tensor);
}

}  // namespace milwright
