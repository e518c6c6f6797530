// Small models made with the Builder, for tests.
#ifndef MILWRIGHT_TESTS_SUPPORT_SMALL_MODEL_H_
#define MILWRIGHT_TESTS_SUPPORT_SMALL_MODEL_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mil/model.h"
#include "milwright/model.h"
#include "ops/builder.h"
#include "ops/infer.h"
#include "support/test_util.h"

namespace milwright::testing {

/// A model with one iOS18 function `name` whose body `fill` writes; `fill` sets the outputs of the block.
inline ModelSpec MakeSpec(const std::function<void(Function&, Builder&)>& fill, const std::string& name = "main",
                          Opset opset = Opset::kIOS18) {
  ModelSpec spec;
  spec.source = "test.mlpackage";
  Function* function = spec.program.AddFunction(name, opset);
  Builder builder(function->body());
  fill(*function, builder);
  EXPECT_TRUE(builder.status().ok()) << builder.status().message();
  spec.description.functions.push_back(DescribeFunction(*function));
  return spec;
}

/// The same, verified and ready to run.
inline Model MakeModel(const std::function<void(Function&, Builder&)>& fill, Opset opset = Opset::kIOS18) {
  ModelSpec spec = MakeSpec(fill, "main", opset);
  const Status status = Verify(spec.program);
  EXPECT_TRUE(status.ok()) << status.message();
  return *Model::FromSpec(std::make_shared<const ModelSpec>(std::move(spec)));
}

inline Tensor Floats(DataType dtype, Shape shape, const std::vector<float>& values) {
  return *Tensor::FromFloats({dtype, std::move(shape)}, values);
}
inline Tensor Halves(Shape shape, const std::vector<float>& values) {
  return Floats(DataType::kFp16, std::move(shape), values);
}
inline Tensor Ints(Shape shape, const std::vector<int64_t>& values) {
  return *Tensor::VectorOf(DataType::kInt32, values).Reshaped(std::move(shape));
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_SMALL_MODEL_H_
