#include "llm/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace milwright {
namespace {

/// The object that holds the parameters, in either spelling.
ConfigReader& Parameters(ConfigReader& config, const RopeRequest& request) {
  if (config.Has("rope_parameters")) {
    ConfigReader& all = config.Section("rope_parameters");
    return request.kind.empty() ? all : all.Section(request.kind);
  }
  return config.Section(request.scaling_key);
}

double PartialFactor(ConfigReader& config, ConfigReader& parameters) {
  const double outer = config.NumberOr("partial_rotary_factor", 1);
  const double inner = parameters.NumberOr("partial_rotary_factor", outer);
  if (config.Has("partial_rotary_factor") && inner != outer) {
    config.Fail("partial_rotary_factor", fmt::format("is {}, but the rope parameters say {}", outer, inner));
  }
  if (!(inner > 0 && inner <= 1)) parameters.Fail("partial_rotary_factor", "must be in (0, 1]");
  return inner;
}

void ScaleLlama3(ConfigReader& parameters, std::vector<double>& frequencies) {
  const double factor = parameters.Number("factor");
  const double low = parameters.Number("low_freq_factor");
  const double high = parameters.Number("high_freq_factor");
  const double original = static_cast<double>(parameters.Size("original_max_position_embeddings"));
  if (!(factor > 0) || !(high > low)) parameters.Fail("factor", "llama3 scaling needs factor > 0 and high > low");
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > original / low) {
      frequency /= factor;
    } else if (wavelength >= original / high) {
      const double t = (original / wavelength - low) / (high - low);
      frequency = (1 - t) * frequency / factor + t * frequency;
    }
  }
}

void ScaleLongRope(ConfigReader& config, ConfigReader& parameters, const RopeRequest& request, RopeTable& table) {
  const std::vector<double> short_factor = parameters.Numbers("short_factor");
  const std::vector<double> long_factor = parameters.Numbers("long_factor");
  const int64_t inner = parameters.SizeOr("original_max_position_embeddings", request.max_positions);
  const int64_t original = config.SizeOr("original_max_position_embeddings", inner);  // the outer one has priority
  const double scale =
      parameters.NumberOr("factor", static_cast<double>(request.max_positions) / static_cast<double>(original));
  const double by_length = scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(original))) : 1.0;
  table.scale = parameters.NumberOr("attention_factor", by_length);
  const std::vector<double>& factors = request.context_length <= original ? short_factor : long_factor;
  if (factors.size() != table.frequencies.size()) {
    parameters.Fail("short_factor", fmt::format("and long_factor must have {} entries", table.frequencies.size()));
    return;
  }
  for (size_t i = 0; i < factors.size(); ++i) table.frequencies[i] /= factors[i];
}

void ReadMrope(ConfigReader& parameters, RopeTable& table) {
  if (!parameters.Has("mrope_section")) return;
  table.mrope_section = parameters.Integers("mrope_section");
  if (!parameters.BoolOr("mrope_interleaved", false)) {
    parameters.Fail("mrope_interleaved", "must be true: M-RoPE in blocks (Qwen2-VL) is not supported");
  }
  int64_t sum = 0;
  for (const int64_t size : table.mrope_section) sum += size < 0 || size > 1 << 16 ? 1 << 20 : size;
  if (table.mrope_section.size() != 3 || sum != static_cast<int64_t>(table.frequencies.size())) {
    parameters.Fail("mrope_section", fmt::format("must be three sizes that add up to {}", table.frequencies.size()));
  }
}

}  // namespace

RopeTable ReadRope(ConfigReader& config, const RopeRequest& request) {
  RopeTable table;
  table.name = request.name;
  ConfigReader& parameters = Parameters(config, request);
  const std::string type = parameters.StringOr("rope_type", parameters.StringOr("type", "default"));
  if (parameters.Has("type") && parameters.StringOr("type", "") != type) {
    parameters.Fail("type", "contradicts rope_type");
  }
  const double theta =
      config.Has("rope_parameters") ? parameters.Number("rope_theta") : config.Number(request.theta_key);
  if (!(theta > 0)) config.Fail(request.theta_key, "must be positive");
  const double partial = PartialFactor(config, parameters);
  const bool proportional = type == "proportional";
  // A proportional table covers the whole head, with frequency 0 from the part on; others rotate the first part only.
  const auto part = static_cast<int64_t>(static_cast<double>(request.head_size) * partial);
  const int64_t rotary = proportional ? request.head_size : part;
  if (rotary < 2 || rotary % 2 != 0) {
    config.Fail("partial_rotary_factor", fmt::format("gives a rotary size of {}: must be even", rotary));
    return table;
  }
  for (int64_t i = 0; i < rotary / 2; ++i) {
    const bool still = proportional && i >= part / 2;
    table.frequencies.push_back(still ? 0.0
                                      : std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary)));
  }
  ReadMrope(parameters, table);
  if (type == "linear") {
    const double factor = parameters.Number("factor");
    if (!(factor > 0)) parameters.Fail("factor", "must be positive");
    for (double& frequency : table.frequencies) frequency /= factor;
  } else if (type == "llama3") {
    ScaleLlama3(parameters, table.frequencies);
  } else if (type == "longrope") {
    ScaleLongRope(config, parameters, request, table);
  } else if (type != "default" && !proportional) {
    parameters.Fail("rope_type", fmt::format("is '{}', which is not supported (supported: default, linear, llama3, "
                                             "longrope, proportional)",
                                             type));
  }
  return table;
}

int MropeAxis(const RopeTable& table, size_t i) {
  if (table.mrope_section.empty()) return 0;
  const auto index = static_cast<int64_t>(i);
  for (int axis = 1; axis < 3; ++axis) {
    if (index % 3 == axis && index < 3 * table.mrope_section[static_cast<size_t>(axis)]) return axis;
  }
  return 0;
}

void RopeRow(const RopeTable& table, const std::array<int64_t, 3>& position, std::vector<float>& cosine,
             std::vector<float>& sine) {
  const size_t half = table.frequencies.size();
  cosine.resize(2 * half);
  sine.resize(2 * half);
  for (size_t i = 0; i < half; ++i) {
    const auto n = static_cast<double>(position[static_cast<size_t>(MropeAxis(table, i))]);
    const double angle = n * table.frequencies[i];
    cosine[i] = cosine[i + half] = static_cast<float>(std::cos(angle) * table.scale);
    sine[i] = sine[i + half] = static_cast<float>(std::sin(angle) * table.scale);
  }
}

}  // namespace milwright
