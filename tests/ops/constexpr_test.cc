// Compressed weights in every form, and quantised activations. Expected values are worked out by hand in exact binary
// fractions, so equality is exact.
#include <gmock/gmock.h>

#include "ops/decompress.h"
#include "ops/op_call.h"
#include "ops/op_tensors.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using testing::FloatTensor;
using ::testing::HasSubstr;
using testing::IntTensor;
using testing::OpCall;

Literal Attribute(Tensor tensor) { return Literal(std::move(tensor)); }

TEST(BlockwiseTest, BlocksOnEveryAxisWithOffsets) {
  OpCall call("constexpr_blockwise_shift_scale");
  call.Value("data", IntTensor(DataType::kInt4, {2, 4}, {-8, 7, 1, 2, 3, 4, 5, 6}));
  call.Floats("scale", {2, 2}, {0.5, 2, 1, 4}, DataType::kFp16);
  call.Value("offset", IntTensor(DataType::kInt4, {2, 2}, {1, -1, 0, 2}));
  EXPECT_THAT(call.Output(), ElementsAre(-4.5F, 3, 4, 6, 3, 4, 12, 16));
  EXPECT_EQ((*call.Run())[0].dtype(), DataType::kFp16);
}

TEST(BlockwiseTest, RoundsOnceToTheDeclaredType) {
  // 255 * 0.0999755859375 = 25.4937744140625 exactly; the fp16 numbers there are 1/64 apart.
  OpCall call("constexpr_blockwise_shift_scale");
  call.Value("data", IntTensor(DataType::kUInt8, {1}, {255})).Floats("scale", {1}, {0.0999755859375F}, DataType::kFp16);
  EXPECT_THAT(call.Output(), ElementsAre(25.5F));
}

TEST(BlockwiseTest, SaysWhatDoesNotFit) {
  OpCall call("constexpr_blockwise_shift_scale");
  call.Typed("data", DataType::kInt4, {4, 6}).Typed("scale", DataType::kFp16, {4, 4});
  EXPECT_EQ(call.InferError(),
            "constexpr_blockwise_shift_scale: axis 1: a scale or offset [4, 4] does not divide the data [4, 6]");
  OpCall rank("constexpr_blockwise_shift_scale");
  rank.Typed("data", DataType::kInt4, {4, 6}).Typed("scale", DataType::kFp16, {4});
  EXPECT_THAT(rank.InferError(), HasSubstr("a scale or offset [4] has not the rank of the data [4, 6]"));
}

TEST(AffineTest, VectorScaleAndScalarZeroPoint) {
  OpCall call("constexpr_affine_dequantize", Opset::kIOS16);
  call.Value("quantized_data", Attribute(IntTensor(DataType::kUInt8, {2, 2}, {0, 255, 3, 4})));
  call.Value("zero_point", Attribute(IntTensor(DataType::kUInt8, {}, {3})));
  call.Floats("scale", {2}, {0.5, 2}, DataType::kFp16).Int("axis", -1);
  EXPECT_THAT(call.Output(), ElementsAre(-1.5F, 504, 0, 2));
  OpCall misfit("constexpr_affine_dequantize", Opset::kIOS16);
  misfit.Typed("quantized_data", DataType::kUInt8, {2, 3}).Typed("zero_point", DataType::kUInt8, {});
  misfit.Typed("scale", DataType::kFp16, {2}).Int("axis", 1);
  EXPECT_THAT(misfit.InferError(), HasSubstr("a scale or zero point [2] does not fit axis 1 of the data [2, 3]"));
}

TEST(CastTest, Fp16BecomesFp32) {
  OpCall call("constexpr_cast", Opset::kIOS16);
  call.Floats("source_val", {2}, {65504, 5.960464477539063e-08F}, DataType::kFp16).Text("output_dtype", "fp32");
  EXPECT_THAT(call.Output(), ElementsAre(65504, 5.960464477539063e-08F));
  EXPECT_EQ((*call.Run())[0].dtype(), DataType::kFp32);
}

// Tables [2, 1, 4, 1]: rows 0-1 use the first, rows 2-3 the second.
TEST(LutTest, GroupsOfRows) {
  OpCall call("constexpr_lut_to_dense");
  call.Value("indices", IntTensor(DataType::kUInt2, {4, 2}, {0, 1, 2, 3, 3, 2, 1, 0}));
  call.Floats("lut", {2, 1, 4, 1}, {0, 1, 2, 3, 10, 11, 12, 13});
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 2, 3, 13, 12, 11, 10));
}

TEST(LutTest, GroupsOfColumnsAndAnInt8Table) {
  OpCall call("constexpr_lut_to_dense");
  call.Value("indices", IntTensor(DataType::kUInt1, {2, 4}, {0, 1, 0, 1, 1, 1, 0, 0}));
  call.Value("lut", IntTensor(DataType::kInt8, {1, 2, 2, 1}, {-5, 5, -7, 7}));
  EXPECT_THAT(call.Output(), ElementsAre(-5, 5, -7, 7, 5, 5, -7, -7));
  EXPECT_EQ((*call.Run())[0].dtype(), DataType::kInt8);
}

TEST(LutTest, VectorsAreLaidAlongTheVectorAxis) {
  const auto decode = [](int64_t axis) {
    OpCall call("constexpr_lut_to_dense");
    call.Value("indices", IntTensor(DataType::kUInt1, {2, 2}, {0, 1, 1, 0}));
    call.Floats("lut", {1, 1, 2, 2}, {1, 2, 3, 4}).Int("vector_axis", axis);
    return std::pair(call.InferredShape(), call.Output());
  };
  EXPECT_EQ(decode(0), std::pair(std::string("[4, 2]"), std::vector<float>({1, 3, 2, 4, 3, 1, 4, 2})));
  EXPECT_EQ(decode(-1), std::pair(std::string("[2, 4]"), std::vector<float>({1, 2, 3, 4, 3, 4, 1, 2})));
}

TEST(LutTest, SaysWhatDoesNotFit) {
  OpCall entries("constexpr_lut_to_dense");
  entries.Typed("indices", DataType::kUInt2, {4, 2}).Typed("lut", DataType::kFp16, {1, 1, 16, 1});
  EXPECT_THAT(entries.InferError(), HasSubstr("the table has not one entry for every index"));
  OpCall groups("constexpr_lut_to_dense");
  groups.Typed("indices", DataType::kUInt2, {4, 2}).Typed("lut", DataType::kFp16, {3, 1, 4, 1});
  EXPECT_THAT(groups.InferError(), HasSubstr("the groups do not divide axis 0"));
  OpCall axis("constexpr_lut_to_dense");
  axis.Typed("indices", DataType::kUInt2, {4, 2}).Typed("lut", DataType::kFp16, {1, 1, 4, 2});
  EXPECT_THAT(axis.InferError(), HasSubstr("vectors need a vector_axis"));
}

// Before iOS18: 2-bit indices 0 1 2 3 | 1 are the bytes 0b11'10'01'00 and 0b01.
TEST(PackedLutTest, UnpacksLowBitsFirst) {
  OpCall call("constexpr_lut_to_dense", Opset::kIOS17);
  call.Value("indices", Attribute(IntTensor(DataType::kUInt8, {2}, {0b11100100, 0b01})));
  call.Floats("lut", {4}, {0.5, 1.5, 2.5, 3.5}, DataType::kFp16);
  call.Value("shape", Attribute(IntTensor(DataType::kUInt32, {2}, {5, 1})));
  EXPECT_EQ(call.InferredShape(), "[5, 1]");
  EXPECT_THAT(call.Output(), ElementsAre(0.5F, 1.5F, 2.5F, 3.5F, 1.5F));
  OpCall short_of_bytes("constexpr_lut_to_dense", Opset::kIOS17);
  short_of_bytes.Value("indices", Attribute(IntTensor(DataType::kUInt8, {1}, {0})));
  short_of_bytes.Typed("lut", DataType::kFp16, {4}).Value("shape", Attribute(IntTensor(DataType::kUInt32, {1}, {5})));
  EXPECT_THAT(short_of_bytes.InferError(), HasSubstr("[5] indices of 2 bits are 2 bytes, but the indices are [1]"));
}

TEST(SparseTest, FillsWhereTheMaskIsSet) {
  OpCall call("constexpr_sparse_to_dense");
  call.Value("nonzero_data", IntTensor(DataType::kInt4, {2}, {-8, 7}));
  call.Value("mask", IntTensor(DataType::kUInt1, {2, 2}, {0, 1, 1, 0}));
  EXPECT_THAT(call.Output(), ElementsAre(0, -8, 7, 0));
  OpCall packed("constexpr_sparse_to_dense", Opset::kIOS16);
  packed.Floats("nonzero_data", {3}, {1, 2, 3})
      .Value("mask", Attribute(IntTensor(DataType::kUInt8, {2}, {0b10000001, 1})));
  packed.Value("shape", Attribute(IntTensor(DataType::kUInt32, {2}, {3, 3})));
  EXPECT_THAT(packed.Output(), ElementsAre(1, 0, 0, 0, 0, 0, 0, 2, 3));
}

TEST(SparseTest, CountsMustAgree) {
  OpCall call("constexpr_sparse_to_dense");
  call.Floats("nonzero_data", {1}, {1}).Value("mask", IntTensor(DataType::kUInt1, {2, 2}, {0, 1, 1, 0}));
  EXPECT_EQ(call.Run().status().message(),
            "constexpr_sparse_to_dense: the mask [2, 2] has 2 bits set, but there are 1 elements");
}

TEST(SparseTest, BlockwiseKeepsThePair) {
  OpCall call("constexpr_sparse_blockwise_shift_scale");
  call.Value("data_mask", IntTensor(DataType::kUInt1, {2, 2}, {0, 1, 1, 0}));
  call.Value("nonzero_data", IntTensor(DataType::kUInt8, {2}, {5, 6})).Floats("scale", {2, 1}, {2, 0.5});
  call.Value("offset", IntTensor(DataType::kUInt8, {2, 1}, {1, 2}));
  EXPECT_THAT(call.Output(0), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(call.Output(1), ElementsAre(8, 2));
}

TEST(SparseTest, TablesOfVectorsGrowTheMask) {
  OpCall call("constexpr_lut_to_sparse");
  call.Value("indices_mask", IntTensor(DataType::kUInt1, {2, 2}, {0, 1, 1, 0}));
  call.Value("indices_nonzero_data", IntTensor(DataType::kUInt1, {2}, {1, 0}));
  call.Floats("lut", {1, 1, 2, 2}, {1, 2, 3, 4}).Int("vector_axis", 0);
  const auto types = call.Infer();
  ASSERT_TRUE(types.ok()) << types.status().message();
  EXPECT_EQ(TypeToString((*types)[0]), "tensor<uint1, [4, 2]>");
  EXPECT_EQ(TypeToString((*types)[1]), "tensor<fp32, [4]>");
  // Dense: columns 0 3 | 0 4 | 1 0 | 2 0.
  EXPECT_THAT(call.Output(0), ElementsAre(0, 1, 0, 1, 1, 0, 1, 0));
  EXPECT_THAT(call.Output(1), ElementsAre(3, 4, 1, 2));
}

TEST(DecompressTest, IndexTypes) {
  EXPECT_EQ(*IndexType(64), DataType::kUInt6);
  EXPECT_EQ(IndexType(5).status().message(), "a table of 5 entries fits no index type");
}

TEST(QuantizeTest, RoundsHalvesToEvenAndSaturates) {
  OpCall call("quantize");
  call.Floats("input", {5}, {0.5, 1.5, -2.5, 1000, -1000}).Float("scale", 1).Text("output_dtype", "int8");
  EXPECT_THAT(call.Output(), ElementsAre(0, 2, -2, 127, -128));
}

TEST(QuantizeTest, ByChannelAndBack) {
  OpCall call("quantize");
  call.Floats("input", {2, 2}, {1, -1, 2, 4}).Floats("scale", {2}, {0.5, 2}).Int("axis", 0);
  call.Value("zero_point", IntTensor(DataType::kUInt8, {2}, {10, 20})).Text("output_dtype", "uint8");
  EXPECT_THAT(call.Output(), ElementsAre(12, 8, 21, 22));
  OpCall back("dequantize");
  back.Value("input", (*call.Run())[0]).Floats("scale", {2}, {0.5, 2}).Int("axis", 0);
  back.Value("zero_point", IntTensor(DataType::kUInt8, {2}, {10, 20}));
  EXPECT_THAT(back.Output(), ElementsAre(1, -1, 2, 4));
}

TEST(QuantizeTest, VectorsNeedAnAxis) {
  OpCall call("dequantize");
  call.Typed("input", DataType::kInt8, {2, 2}).Typed("scale", DataType::kFp16, {2});
  EXPECT_EQ(call.InferError(), "dequantize: a scale or zero point of shape [2] needs an axis");
}

}  // namespace
}  // namespace milwright
