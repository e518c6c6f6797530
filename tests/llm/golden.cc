#include "golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/file_io.h"
#include "format/safetensors.h"

namespace milwright::testing {

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path().string() + "/milwright_llm_XXXXXX";
  if (mkdtemp(name.data()) != nullptr) path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  if (!path_.empty()) RemoveTree(path_);
}

std::string FindCheckpoint(const std::string& name) {
  for (const std::string& folder : {std::string(MILWRIGHT_SHARED_DIR) + "/checkpoints/" + name,
                                    std::string(MILWRIGHT_SOURCE_DIR) + "/examples/" + name}) {
    if (std::filesystem::exists(folder + "/config.json")) return folder;
  }
  return {};
}

bool FullTests() {
  const char* value = std::getenv("MILWRIGHT_FULL_TESTS");
  return value != nullptr && std::string(value) == "1";
}

Result<Golden> ReadGolden(const std::string& checkpoint) {
  MW_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(checkpoint + "/golden.safetensors"));
  Golden golden;
  MW_ASSIGN_OR_RETURN(const Tensor ids, file.Load("input_ids"));
  golden.tokens = ids.ToInts();
  const bool generated = file.Contains("gen_ids");
  if (generated) {
    MW_ASSIGN_OR_RETURN(const Tensor more, file.Load("gen_ids"));
    for (const int64_t token : more.ToInts()) golden.tokens.push_back(token);
  }
  MW_ASSIGN_OR_RETURN(const Tensor logits, file.Load(generated ? "full_logits" : "logits"));
  golden.vocabulary = logits.shape().back();
  golden.logits = logits.ToFloats();
  return golden;
}

Difference Compare(const std::vector<float>& logits, const std::vector<float>& reference, int64_t vocabulary,
                   double margin) {
  Difference difference;
  if (logits.size() != reference.size() || vocabulary < 2) {
    difference.max = INFINITY;
    return difference;
  }
  const auto width = static_cast<size_t>(vocabulary);
  double sum = 0;
  for (size_t row = 0; row < reference.size() / width; ++row) {
    const float* a = logits.data() + row * width;
    const float* b = reference.data() + row * width;
    for (size_t i = 0; i < width; ++i) {
      const double d = std::fabs(static_cast<double>(a[i]) - b[i]);
      difference.max = std::isnan(d) ? INFINITY : std::max(difference.max, d);
      sum += d;
    }
    const size_t best = static_cast<size_t>(std::max_element(b, b + width) - b);
    double second = -INFINITY;
    for (size_t i = 0; i < width; ++i) {
      if (i != best) second = std::max(second, static_cast<double>(b[i]));
    }
    const size_t got = static_cast<size_t>(std::max_element(a, a + width) - a);
    if (got != best && b[best] - second > margin) ++difference.wrong_top;
    ++difference.rows;
  }
  difference.mean = sum / static_cast<double>(reference.size());
  return difference;
}

double Deviation(const std::vector<float>& logits, const std::vector<float>& expected) {
  if (logits.size() != expected.size()) return INFINITY;
  double magnitude = 1;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(logits[i]) - expected[i]);
    magnitude = std::max(magnitude, 1.0 + std::fabs(expected[i]));
    largest = std::isfinite(error) ? std::max(largest, error) : INFINITY;
  }
  return largest / magnitude;
}

BuildOptions QuickBuild(const std::string& checkpoint, const std::string& output) {
  BuildOptions options;
  options.checkpoint = checkpoint;
  options.output = output;
  options.durable = false;
  options.hash_checkpoint = false;
  return options;
}

Result<std::vector<float>> RunFolder(const std::string& folder, const std::vector<int64_t>& tokens,
                                     const EngineLoader& loader, int64_t max_length) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Pipeline> pipeline, Pipeline::Open(folder, loader));
  MW_ASSIGN_OR_RETURN(StepResult result, pipeline->Prefill(tokens, max_length));
  return std::move(result.logits);
}

Result<std::vector<float>> RunFolder(const std::string& folder, const Golden& golden, int64_t max_length) {
  return RunFolder(folder, golden.tokens, ReferenceEngine(), max_length);
}

Result<std::vector<float>> BuildAndRun(const BuildOptions& options, const Golden& golden, int64_t max_length) {
  TemporaryFolder folder;
  BuildOptions here = options;
  here.output = folder.path() + "/build";
  here.durable = false;
  here.hash_checkpoint = false;
  MW_ASSIGN_OR_RETURN(const BuildReport report, BuildCheckpoint(here));
  return RunFolder(report.output, golden, max_length);
}

const std::vector<std::string>& CheckpointNames() {
  static const std::vector<std::string> names = {
      "qwen3-jacobean",     "llama-tiny",    "mistral-tiny", "qwen2-tiny",   "qwen3-tiny",
      "qwen3-tiny-sharded", "qwen3_vl-tiny", "qwen3_5-tiny", "gemma3-tiny",  "gemma4-tiny",
      "gemma4dense-tiny",   "lfm2-tiny",     "phi3-tiny",    "smollm3-tiny", "gpt2-tiny"};
  return names;
}

double Fp32Bound(const std::string& checkpoint) { return checkpoint == "qwen3_5-tiny" ? 2e-3 : 2e-4; }

}  // namespace milwright::testing
