#include "small_build.h"

#include <nlohmann/json.hpp>

#include "format/safetensors.h"
#include "llm/build.h"
#include "support/files.h"

namespace milwright::testing {
namespace {

constexpr std::string_view kTemplate =
    "{% for m in messages %}{{ 'ROMEO' if m.role == 'assistant' else m.role | upper }}:\n{{ m.content }}\n\n{% endfor "
    "%}"
    "{% if add_generation_prompt %}ROMEO:\n{% endif %}";

struct Folder {
  Folder() {
    const std::string example = std::string(MILWRIGHT_SOURCE_DIR) + "/examples/qwen3-jacobean";
    const std::string checkpoint = folder.Path("checkpoint");
    CopyPackage(example, checkpoint);
    nlohmann::json config = nlohmann::json::parse(ReadAll(example + "/config.json"));
    config["num_hidden_layers"] = 1;
    WriteAll(checkpoint + "/config.json", config.dump());
    WriteAll(checkpoint + "/chat_template.jinja", kTemplate);
    const auto weights = Safetensors::Open(example + "/model.safetensors");
    EXPECT_OK(weights);
    std::vector<SafetensorsEntry> entries;
    for (const std::string& name : weights->Names()) {
      if (name.starts_with("model.layers.") && !name.starts_with("model.layers.0.")) continue;
      entries.push_back({name, *weights->TypeOf(name), [&weights, name] { return weights->Load(name); }});
    }
    EXPECT_OK(WriteSafetensors(checkpoint + "/model.safetensors", entries));
    BuildOptions options;
    options.checkpoint = checkpoint;
    options.output = path;
    options.context_length = 160;
    options.durable = false;
    options.hash_checkpoint = false;
    EXPECT_OK(BuildCheckpoint(options));
  }
  TemporaryFolder folder;
  std::string path = folder.Path("small");
};

}  // namespace

const std::string& SmallBuild() {
  static const Folder folder;
  return folder.path;
}

}  // namespace milwright::testing
