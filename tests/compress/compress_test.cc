#include "compress/compress.h"

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "analysis/weight_report.h"
#include "compress/kmeans.h"
#include "exec/interpreter.h"
#include "milwright/half.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::Halves;
using testing::MakeSpec;

ModelSpec OneLinear(const Tensor& weight) {
  return MakeSpec([&weight](Function& f, Builder& b) {
    Value* x = f.AddInput("x", TensorType{weight.dtype(), {1, weight.shape()[1]}});
    f.body().SetOutputs({b.Op("linear", {{"x", x}, {"weight", Literal(weight)}}, "y")});
  });
}

Tensor RandomWeight(Shape shape, DataType dtype = DataType::kFp16, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(*ElementCount(shape)));
  for (float& value : values) value = normal(random);
  return *Tensor::FromFloats({dtype, std::move(shape)}, values);
}

constexpr const char* kFormats[] = {"int8",
                                    "int8:tensor",
                                    "int8:block16",
                                    "int8:asym",
                                    "int4",
                                    "int4:channel",
                                    "int4:tensor:asym",
                                    "int4:block16:asym",
                                    "lut1",
                                    "lut2",
                                    "lut3:group16",
                                    "lut4",
                                    "lut4:group8",
                                    "lut6",
                                    "lut8:group32",
                                    "lut4:group16:scale",
                                    "lut4:group16:int8",
                                    "lut4:tensor:scale:int8",
                                    "sparse:0.5"};

// Whatever the format: the program verifies, its constexpr ops decode to what the compressor said, and the report names
// the format as the field does.
TEST(Compress, EveryFormatDecodesToWhatTheCompressorSays) {
  for (const DataType dtype : {DataType::kFp16, DataType::kFp32}) {
    const Tensor weight = RandomWeight({32, 64}, dtype);
    for (const char* text : kFormats) {
      const auto format = ParseCompression(text);
      ASSERT_OK(format);
      EXPECT_EQ(*ParseCompression(CompressionText(*format)), *format) << text;
      const auto compressed = CompressTensor(weight, *format);
      ASSERT_OK(compressed);
      ModelSpec spec = OneLinear(weight);
      CompressOptions options;
      options.format = *format;
      options.min_elements = 16;
      const auto report = CompressModel(spec, options);
      ASSERT_OK(report);
      ASSERT_EQ(report->weights.size(), 1U);
      ASSERT_OK(Verify(spec.program));
      EXPECT_NE(FindWeights(*spec.program.FindFunction("main")).front().format.name, std::string(DataTypeName(dtype)))
          << text;
      // Row r of the weight comes out when x is its unit vector; take all at once from the decoded value itself.
      ConstantCache cache;
      StateValues states;
      std::vector<float> decoded;
      const auto observe = [&](const Operation& op, const std::vector<Literal>& results) {
        if (op.type().starts_with("constexpr_") && op.output()->uses().front().op->type() == "linear")
          decoded = results.front().tensor.ToFloats();
      };
      ASSERT_OK(RunFunction(*spec.program.FindFunction("main"), {Literal(*Tensor::Zeros({dtype, {1, 64}}))}, states,
                            cache, observe));
      ASSERT_EQ(decoded.size(), compressed->decoded.size()) << text;
      for (size_t i = 0; i < decoded.size(); ++i) {
        const float wanted = dtype == DataType::kFp16 ? RoundToHalf(compressed->decoded[i]) : compressed->decoded[i];
        ASSERT_NEAR(decoded[i], wanted, std::abs(wanted) * 1e-6) << text << " element " << i;
      }
    }
  }
}

// A tied embedding of a build in ANE style is the same bytes as [rows, columns] of a gather and as [rows, columns, 1,
// 1] of a convolution: compressed once, each use with the shape that it had, and the same bytes still.
TEST(Compress, OneMatrixInSeveralShapesIsCompressedOnce) {
  const Tensor matrix = RandomWeight({32, 64});
  const auto in_shape = [&matrix](Shape shape) { return Literal(*matrix.Reshaped(std::move(shape))); };
  for (const char* text : kFormats) {
    ModelSpec spec = MakeSpec([&](Function& f, Builder& b) {
      Value* row = f.AddInput("row", TensorType{DataType::kInt32, {1}});
      Value* x = f.AddInput("x", TensorType{DataType::kFp16, {1, 64}});
      Value* image = f.AddInput("image", TensorType{DataType::kFp16, {1, 64, 1, 1}});
      Value* line = f.AddInput("line", TensorType{DataType::kFp16, {1, 64, 1}});
      f.body().SetOutputs(
          {b.Op("gather", {{"x", in_shape({32, 64})}, {"indices", row}, {"axis", Literal::Int32(0)}}, "picked"),
           b.Op("linear", {{"x", x}, {"weight", in_shape({32, 64})}}, "product"),
           b.Op("conv", {{"x", image}, {"weight", in_shape({32, 64, 1, 1})}}, "plane"),
           b.Op("conv", {{"x", line}, {"weight", in_shape({32, 64, 1})}}, "sequence")});
    });
    CompressOptions options;
    options.format = *ParseCompression(text);
    options.min_elements = 16;
    const auto report = CompressModel(spec, options);
    ASSERT_OK(report);
    EXPECT_EQ(report->weights.size(), 1U) << text;
    ASSERT_OK(Verify(spec.program));

    ConstantCache cache;
    StateValues states;
    std::map<std::string, Tensor> decoded;  // by the op that uses it
    std::map<std::string, std::set<const std::byte*>> parts;
    const auto observe = [&](const Operation& op, const std::vector<Literal>& results) {
      if (!op.type().starts_with("constexpr_")) return;
      for (const auto& input : op.inputs()) {
        const LiteralPtr& literal = input.arguments.front().literal;
        if (literal != nullptr) parts[op.type() + input.name].insert(literal->tensor.bytes().data());
      }
      for (const Use& use : op.output()->uses()) {
        if (!use.op->type().starts_with("constexpr_")) decoded.emplace(use.op->output()->name, results.front().tensor);
      }
    };
    const std::vector<Literal> inputs = {Literal(*Tensor::Zeros({DataType::kInt32, {1}})),
                                         Literal(*Tensor::Zeros({DataType::kFp16, {1, 64}})),
                                         Literal(*Tensor::Zeros({DataType::kFp16, {1, 64, 1, 1}})),
                                         Literal(*Tensor::Zeros({DataType::kFp16, {1, 64, 1}}))};
    ASSERT_OK(RunFunction(*spec.program.FindFunction("main"), inputs, states, cache, observe));
    ASSERT_EQ(decoded.size(), 4U) << text;
    EXPECT_EQ(decoded.at("plane").shape(), (Shape{32, 64, 1, 1}));
    EXPECT_EQ(decoded.at("sequence").shape(), (Shape{32, 64, 1}));
    for (const auto& [user, tensor] : decoded) {
      EXPECT_TRUE(tensor.Reshaped({32, 64})->BitEquals(decoded.at("picked"))) << text << " " << user;
    }
    for (const auto& [part, places] : parts) {
      // A table of int8 with its scale and the scale of what it decodes are parameters of one op.
      const size_t most = std::string_view(text).ends_with("scale:int8") ? 2 : 1;
      EXPECT_LE(places.size(), most) << text << " " << part;
    }
  }
}

// Bounds of pieces depend on the tensor alone, so threads must not show: large weights of every path, groups whose
// codes straddle bytes, and rows longer than what is read at once.
TEST(Compress, BytesDoNotDependOnTheNumberOfThreads) {
  for (const DataType dtype : {DataType::kFp16, DataType::kFp32}) {
    for (const Shape& shape : {Shape{96, 2112}, Shape{320, 1001}}) {
      const Tensor weight = RandomWeight(shape, dtype);
      for (const char* text : {"int8", "int8:tensor", "int8:block11", "int4:asym:channel", "int4:block11",
                               "int4:tensor:asym", "lut4:group16", "lut3:group1", "lut4:tensor", "lut4:group8:scale",
                               "lut6:tensor:scale:int8", "sparse:0.5"}) {
        CompressionFormat format = *ParseCompression(text);
        if (format.block_size == 11 && shape[1] % 11 != 0) format.block_size = 7 * 13;
        const auto one = CompressTensor(weight, format);
        ASSERT_OK(one);
        double error = 0;
        double largest = 0;
        for (size_t i = 0; i < one->decoded.size(); ++i) {
          const double d = std::abs(weight.GetDouble(static_cast<int64_t>(i)) - one->decoded[i]);
          error += d * d;
          largest = std::max(largest, d);
        }
        EXPECT_NEAR(one->error.error_squares, error, error * 1e-9) << text;
        EXPECT_EQ(one->error.largest, largest) << text;
        for (const int threads : {2, 3}) {
          const auto many = CompressTensor(weight, format, {.decoded = true, .threads = threads});
          ASSERT_OK(many);
          const auto expect_equal = [&](const auto& a, const auto& b) {
            ASSERT_EQ(a.size(), b.size());
            for (size_t i = 0; i < a.size(); ++i)
              EXPECT_TRUE(a[i].tensor.BitEquals(b[i].tensor)) << text << " " << threads;
          };
          expect_equal(one->parts, many->parts);
          expect_equal(one->table_parts, many->table_parts);
          expect_equal(one->scale_parts, many->scale_parts);
          EXPECT_EQ(one->decoded, many->decoded) << text;
          EXPECT_EQ(one->error.error_squares, many->error.error_squares) << text;
        }
      }
    }
  }
}

// Groups that are too long to be copied, several at once: the table of each is within 0.1 % of the best.
TEST(Compress, LongGroupsGetTheBestTablesToo) {
  const Tensor weight = RandomWeight({4, 70000}, DataType::kFp32);
  const auto one = CompressTensor(weight, *ParseCompression("lut4:group2"));
  const auto three = CompressTensor(weight, *ParseCompression("lut4:group2"), {.decoded = true, .threads = 3});
  ASSERT_OK(one);
  ASSERT_OK(three);
  EXPECT_EQ(one->decoded, three->decoded);
  double least = 0;
  for (const size_t group : {0U, 1U}) {
    const auto values = weight.As<float>().subspan(group * 140000, 140000);
    std::vector<float> sorted(values.begin(), values.end());
    least += ClusterError(values, KMeans1d(sorted, 16));
  }
  EXPECT_LE(one->error.error_squares, least * 1.001);
}

TEST(Compress, TheModelRefersToStoredParts) {
  ModelSpec spec = OneLinear(RandomWeight({512, 256}));
  CompressOptions options;
  options.format = *ParseCompression("int4:block32");
  std::vector<Tensor> stored;
  ASSERT_OK(CompressModel(spec, options, [&stored](const Tensor& part) -> Result<Tensor> {
    std::vector<std::byte> bytes(part.bytes().begin(), part.bytes().end());
    MW_ASSIGN_OR_RETURN(Tensor copy, Tensor::FromBytes(part.type(), std::move(bytes)));
    stored.push_back(copy);
    return copy;
  }));
  ASSERT_EQ(stored.size(), 1U);  // the codes; the scales are small
  bool found = false;
  ForEachOperation(spec.program.FindFunction("main")->body(), [&](Operation& op) {
    if (op.type() != "constexpr_blockwise_shift_scale") return;
    found = op.FindInput("data")->arguments.front().literal->tensor.bytes().data() == stored.front().bytes().data();
  });
  EXPECT_TRUE(found);
}

TEST(Compress, ErrorsShrinkWithBits) {
  const Tensor weight = RandomWeight({64, 128});
  const auto error = [&weight](const char* text) {
    const auto compressed = CompressTensor(weight, *ParseCompression(text));
    double sum = 0;
    for (int64_t i = 0; i < weight.size(); ++i)
      sum += std::pow(weight.GetDouble(i) - compressed->decoded[static_cast<size_t>(i)], 2);
    return sum;
  };
  EXPECT_LT(error("lut4:group16"), error("lut2:group16"));
  EXPECT_LT(error("lut6:group16"), error("lut4:group16"));
  EXPECT_LT(error("int8"), error("int4:channel"));
  EXPECT_LT(error("int4:block32"), error("int4:channel"));
  EXPECT_LT(error("lut4:group1"), error("lut4:group16"));
}

TEST(Compress, SpecialValuesHaveDefinedResults) {
  std::vector<float> values(4 * 32, 0.0F);
  for (size_t i = 32; i < 64; ++i) values[i] = 1e-7F;  // denormal in fp16
  values[64] = NAN;
  values[65] = INFINITY;
  values[96] = -1;
  const Tensor weight = Halves({4, 32}, values);
  for (const char* text :
       {"int8", "int4:block32", "int8:asym", "lut4:group1", "lut4:group2:scale", "lut4:tensor:int8", "sparse:0.9"}) {
    const auto compressed = CompressTensor(weight, *ParseCompression(text));
    ASSERT_OK(compressed);
    for (const float value : compressed->decoded) EXPECT_TRUE(std::isfinite(value)) << text;
    for (size_t i = 0; i < 32; ++i) {
      if (std::string(text).find("tensor") == std::string::npos && std::string(text) != "lut4:group2:scale") {
        EXPECT_EQ(compressed->decoded[i], 0.0F) << text;
      }
    }
    for (const auto& part : compressed->parts) {
      for (int64_t i = 0; part.parameter == "scale" && i < part.tensor.size(); ++i)
        EXPECT_GT(part.tensor.GetDouble(i), 0) << text;
    }
  }
}

// Equal magnitudes in several pieces of the work: the first of them go, as many as are wanted.
TEST(Compress, PruningDropsTheSmallestAndOfEqualsTheFirst) {
  const Shape shape = {300, 1000};
  std::vector<float> values(300000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (i % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(i * 7 % 4);
  for (const DataType dtype : {DataType::kFp16, DataType::kFp32}) {
    const Tensor weight = *Tensor::FromFloats({dtype, shape}, values);
    for (const int threads : {1, 3}) {
      // A quarter each is 0, 1, 2 and 3.
      const auto pruned =
          CompressTensor(weight, *ParseCompression("sparse:0.6"), {.decoded = true, .threads = threads});
      ASSERT_OK(pruned);
      size_t twos = 0;
      size_t kept = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const bool goes = std::abs(values[i]) < 2 || (std::abs(values[i]) == 2 && twos++ < 30000);
        ASSERT_EQ(pruned->decoded[i], goes ? 0.0F : values[i]) << i;
        if (goes) continue;
        ASSERT_EQ(pruned->parts[1].tensor.GetDouble(static_cast<int64_t>(kept++)), values[i]);
      }
      EXPECT_EQ(pruned->parts[1].tensor.size(), static_cast<int64_t>(kept));
      EXPECT_EQ(kept, 120000U);
    }
  }
  const auto nothing = CompressTensor(*Tensor::Zeros({DataType::kFp16, shape}), *ParseCompression("sparse:0.5"));
  ASSERT_OK(nothing);
  EXPECT_EQ(nothing->parts[1].tensor.size(), 0);
}

TEST(Compress, WhatDoesNotFitStaysAndIsSaid) {
  ModelSpec spec = OneLinear(RandomWeight({32, 60}));
  CompressOptions options;
  options.min_elements = 16;
  options.format = *ParseCompression("int4:block32");
  const auto report = CompressModel(spec, options);
  ASSERT_OK(report);
  EXPECT_TRUE(report->weights.empty());
  ASSERT_EQ(report->notes.size(), 1U);
  EXPECT_NE(report->notes.front().find("blocks of 32 do not divide the 60 inputs"), std::string::npos)
      << report->notes.front();
  options.rules = {{"y_weight", *ParseCompression("none")}};
  EXPECT_TRUE(CompressModel(spec, options)->notes.empty());
  options.rules = {{"(", {}}};
  EXPECT_EQ(CompressModel(spec, options).status().code(), ErrorCode::kUsage);
  for (const char* text : {"int3", "lut5", "lut4:block32", "int8:scale", "sparse:2", "sparse", "", "int8:blockx"}) {
    EXPECT_EQ(ParseCompression(text).status().code(), ErrorCode::kUsage) << text;
  }
}

}  // namespace
}  // namespace milwright
