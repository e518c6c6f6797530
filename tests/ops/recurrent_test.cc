#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "op_call.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using testing::OpCall;

constexpr float kRecurrentUlps = 1e-6F;  // a few fp32 roundings of values near 1

// h = x + 2h with one unit and no squashing: small integers, so every number is exact.
OpCall LinearRnn(const char* direction, bool sequence) {
  return OpCall("rnn")
      .Floats("x", {3, 1, 1}, {1, 2, 3})
      .Floats("initial_h", {1, 1}, {1})
      .Floats("weight_ih", {1, 1}, {1})
      .Floats("weight_hh", {1, 1}, {2})
      .Text("activation", "linear")
      .Text("direction", direction)
      .Bool("output_sequence", sequence);
}

TEST(Rnn, ReturnsTheSequenceAndTheLastState) {
  EXPECT_THAT(LinearRnn("forward", true).Output(0), ElementsAre(3, 8, 19));
  EXPECT_THAT(LinearRnn("forward", true).Output(1), ElementsAre(19));
  EXPECT_THAT(LinearRnn("forward", false).Output(0), ElementsAre(19));
  EXPECT_EQ(LinearRnn("forward", false).InferredShape(), "[1, 1, 1]");
}

TEST(Rnn, AReversedSequenceStaysInProcessingOrder) {
  EXPECT_THAT(LinearRnn("reverse", true).Output(0), ElementsAre(5, 12, 25));
  EXPECT_THAT(LinearRnn("reverse", true).Output(1), ElementsAre(25));
}

TEST(Rnn, HardSigmoidClips) {
  const auto rnn = OpCall("rnn")
                       .Floats("x", {1, 3, 1}, {-5, 1, 5})
                       .Floats("initial_h", {3, 1}, {0, 0, 0})
                       .Floats("weight_ih", {1, 1}, {1})
                       .Floats("weight_hh", {1, 1}, {1})
                       .Text("activation", "sigmoid_hard");
  EXPECT_THAT(rnn.Output(), ElementsAre(0, 0.7F, 1));
}

// One unit, gates r, o, z; the recurrent activation is linear, so that the gates are what the weights say.
OpCall Gru(bool reset_after) {
  return OpCall("gru")
      .Floats("x", {1, 1, 1}, {1})
      .Floats("initial_h", {1, 1}, {4})
      .Floats("weight_ih", {3, 1}, {0.5F, 3, 0.25F})  // r = 0.5, z = 0.25
      .Floats("weight_hh", {3, 1}, {0, 2, 0})
      .Floats("bias", {3}, {0, 1, 0})
      .Text("recurrent_activation", "linear")
      .Text("activation", "linear")
      .Bool("reset_after", reset_after);
}

TEST(Gru, ResetsTheStateBeforeTheProductByDefault) {
  // o = 3*1 + 2*(0.5*4) + 1 = 8; h = 0.75*8 + 0.25*4 = 7.
  EXPECT_THAT(Gru(false).Output(), ElementsAre(7));
}

TEST(Gru, ResetAfterScalesTheProductWithItsBias) {
  // o = 3*1 + b_in + 0.5*(2*4 + 1) = 7.5 + b_in; h = 0.75*o + 1.
  EXPECT_THAT(Gru(true).Output(), ElementsAre(6.625F));
  EXPECT_THAT(Gru(true).Floats("input_bias", {3}, {0, 0.5F, 0}).Output(), ElementsAre(7));
}

// One unit, gates i, f, o, z = 1, 0.5, 2, x with linear activations: c = 0.5 c + x, h = 2 c.
OpCall Lstm() {
  return OpCall("lstm")
      .Floats("x", {2, 1, 1}, {1, 3})
      .Floats("weight_ih", {4, 1}, {0, 0, 0, 1})
      .Floats("weight_hh", {4, 1}, {0, 0, 0, 0})
      .Floats("bias", {4}, {1, 0.5F, 2, 0})
      .Text("recurrent_activation", "linear")
      .Text("cell_activation", "linear")
      .Text("activation", "linear")
      .Bool("output_sequence", true);
}

TEST(Lstm, KeepsACellState) {
  const auto lstm = Lstm().Floats("initial_h", {1, 1}, {0}).Floats("initial_c", {1, 1}, {8});
  EXPECT_THAT(lstm.Output(0), ElementsAre(10, 11));  // c = 5, 5.5
  EXPECT_THAT(lstm.Output(1), ElementsAre(11));
  EXPECT_THAT(lstm.Output(2), ElementsAre(5.5F));
}

TEST(Lstm, ClipsTheCellAndPeepsAtTheClippedOne) {
  const auto lstm = [] {
    return Lstm().Floats("initial_h", {1, 1}, {0}).Floats("initial_c", {1, 1}, {8}).Float("clip", 4);
  };
  EXPECT_THAT(lstm().Output(0), ElementsAre(8, 8));  // c = 4, then 2 + 3 clipped to 4
  // Peephole on o alone: o = 2 + c(t) = 6, with the clipped c.
  EXPECT_THAT(lstm().Floats("peephole", {3}, {0, 0, 1}).Output(0), ElementsAre(24, 24));
  // Peephole on f: f = 0.5 + c(t-1) = 8.5, so c = 68 + 1 clips to 4.
  EXPECT_THAT(lstm().Floats("peephole", {3}, {0, 1, 0}).Output(0), ElementsAre(8, 8));
}

TEST(Lstm, ABidirectionalOnePutsTheBackwardHalfInTheOrderOfX) {
  const auto lstm = [](bool sequence) {
    return OpCall("lstm")
        .Floats("x", {2, 1, 1}, {1, 3})
        .Floats("initial_h", {1, 2}, {0, 0})
        .Floats("initial_c", {1, 2}, {8, 16})
        .Floats("weight_ih", {4, 1}, {0, 0, 0, 1})
        .Floats("weight_hh", {4, 1}, {0, 0, 0, 0})
        .Floats("bias", {4}, {1, 0.5F, 2, 0})
        .Floats("weight_ih_back", {4, 1}, {0, 0, 0, 1})
        .Floats("weight_hh_back", {4, 1}, {0, 0, 0, 0})
        .Floats("bias_back", {4}, {1, 0.5F, 1, 0})
        .Text("direction", "bidirectional")
        .Text("recurrent_activation", "linear")
        .Text("cell_activation", "linear")
        .Text("activation", "linear")
        .Bool("output_sequence", sequence);
  };
  // Forward h = 10, 11. Backward: c = 8 + 3 = 11 at t = 1, then 5.5 + 1 = 6.5 at t = 0, and h = c.
  EXPECT_THAT(lstm(true).Output(0), ElementsAre(10, 6.5F, 11, 11));
  EXPECT_THAT(lstm(true).Output(1), ElementsAre(11, 6.5F));
  EXPECT_THAT(lstm(true).Output(2), ElementsAre(5.5F, 6.5F));
  EXPECT_THAT(lstm(false).Output(0), ElementsAre(11, 6.5F));
}

TEST(Lstm, DefaultActivationsAreSigmoidAndTanh) {
  const auto lstm = OpCall("lstm")
                        .Floats("x", {1, 1, 1}, {1})
                        .Floats("initial_h", {1, 1}, {0})
                        .Floats("initial_c", {1, 1}, {0})
                        .Floats("weight_ih", {4, 1}, {0, 0, 0, 1})
                        .Floats("weight_hh", {4, 1}, {0, 0, 0, 0});
  EXPECT_THAT(lstm.Output(), ElementsAre(FloatNear(0.5F * std::tanh(0.5F * std::tanh(1.0F)), kRecurrentUlps)));
}

TEST(Recurrent, InfersUnknownSizesAndNamesWrongShapes) {
  const auto lstm = [](Shape x, Shape h) {
    return OpCall("lstm")
        .Typed("x", DataType::kFp16, std::move(x))
        .Typed("initial_h", DataType::kFp16, std::move(h))
        .Typed("initial_c", DataType::kFp16, {2, 4})
        .Typed("weight_ih", DataType::kFp16, {16, 3})
        .Typed("weight_hh", DataType::kFp16, {16, 4})
        .Bool("output_sequence", true);
  };
  EXPECT_EQ(lstm({kUnknownDim, 2, 3}, {2, 4}).InferredShape(), "[?, 2, 4]");
  EXPECT_THAT(lstm({5, 2, 3}, {2, 5}).InferError(),
              HasSubstr("initial_h has shape [2, 5], but x [5, 2, 3] and weight_hh [16, 4] need [2, 4]"));
  EXPECT_THAT(lstm({5, 2, 7}, {2, 4}).InferError(), HasSubstr("weight_ih has shape [16, 3]"));
  EXPECT_THAT(lstm({5, 2}, {2, 4}).InferError(), HasSubstr("[sequence, batch, inputs]"));
  EXPECT_THAT(lstm({5, 2, 3}, {2, 4}).Text("direction", "bidirectional").InferError(), HasSubstr("need"));
  EXPECT_THAT(lstm({5, 2, 3}, {2, 4}).Text("activation", "gelu").InferError(), HasSubstr("activation 'gelu'"));
  EXPECT_THAT(LinearRnn("bidirectional", true).InferError(), HasSubstr("direction 'bidirectional'"));
}

}  // namespace
}  // namespace milwright
