// Recurrent layers: gru, lstm, rnn.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> RecurrentOps() {
  return {
      Op(Opset::kIOS15,
         "gru(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string activation=\"tanh\") where T=fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "gru(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string activation=\"tanh\") where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "gru(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string activation=\"tanh\", const bool reset_after?, const T input_bias?) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "lstm(T x, T initial_h, T initial_c, const T weight_ih, const T weight_hh, const T bias?, const T peephole?, "
         "const T weight_ih_back?, const T weight_hh_back?, const T bias_back?, const T peephole_back?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string cell_activation=\"tanh\", const string activation=\"tanh\", const T clip?) where T=fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "lstm(T x, T initial_h, T initial_c, const T weight_ih, const T weight_hh, const T bias?, const T peephole?, "
         "const T weight_ih_back?, const T weight_hh_back?, const T bias_back?, const T peephole_back?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string cell_activation=\"tanh\", const string activation=\"tanh\", const T clip?) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "rnn(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string activation=\"tanh\") where T=fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "rnn(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string activation=\"tanh\") where T=fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
