// The op table against coremltools' own registry (tests/data/spec/coremltools_registry.json): every op, every version,
// every parameter. The deliberate differences are spelled out below, and nowhere else.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ops/op.h"

namespace milwright {
namespace {

using nlohmann::json;

const json& Spec() {
  static const json spec = [] {
    std::ifstream file(std::string(MILWRIGHT_TEST_DATA) + "/spec/coremltools_registry.json");
    return json::parse(file, nullptr, /*allow_exceptions=*/false);
  }();
  return spec;
}

// Never serialised: it stands for symbolic shapes inside coremltools.
constexpr std::string_view kAbsent = "_const_symbolic";
// In files this pair stands for coremltools' coreml_update_state, which the JSON lists as a dialect op.
const std::set<std::string_view> kStateOps = {"write_state", "coreml_update_state"};

// Parameters of coremltools that are no inputs in a file: nested blocks, and the value of a const, an attribute.
bool IsInput(const json& parameter) { return parameter["kind"] != "block" && parameter["kind"] != "internal"; }

ParameterSpec::Kind KindOf(const std::string& kind) {
  using Kind = ParameterSpec::Kind;
  // Tuples are several arguments under one name; their types are not declared.
  if (kind == "tuple" || kind == "list_or_tensor_or_dict") return Kind::kAny;
  if (kind == "list") return Kind::kList;
  if (kind == "state") return Kind::kState;
  return Kind::kTensor;
}

TypeSet TypesOf(const json& names) {
  TypeSet set;
  for (const json& name : names) {
    const auto type = DataTypeFromName(name.get<std::string>());
    EXPECT_TRUE(type.has_value()) << name;
    if (type.has_value()) set.bits |= uint64_t{1} << static_cast<unsigned>(*type);
  }
  return set;
}

// A default as text, the same for both sides: "none" for a missing one.
std::string DefaultText(const json& value) {
  std::ostringstream text;
  if (value.is_null()) return "none";
  // strides, dilations and pad default to ones or zeros for the rank of x, which the kernels see to.
  if (value.contains("depends_on_rank")) return "none";
  if (value.contains("value")) return DefaultText(value["value"]);  // a number with its type, fp32
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number()) {
    text << value.get<float>();
  } else {
    for (const json& element : value) text << element.get<float>() << ",";
  }
  return text.str();
}

std::string DefaultText(const std::optional<Literal>& value) {
  if (!value.has_value()) return "none";
  if (value->IsString()) return value->AsString();
  std::ostringstream text;
  if (value->type.rank() == 0) {
    text << value->tensor.GetFloat(0);
  } else {
    for (const float element : value->tensor.ToFloats()) text << element << ",";
  }
  return text.str();
}

void CompareParameter(const json& expected, const json& version, const ParameterSpec& actual, bool attribute) {
  const std::string name = expected["name"];
  EXPECT_EQ(actual.name, name);
  EXPECT_EQ(actual.kind, KindOf(expected["kind"])) << name;
  EXPECT_EQ(actual.optional, expected.value("optional", false)) << name;
  EXPECT_EQ(actual.constant, expected.value("const", false)) << name;
  EXPECT_EQ(actual.attribute, attribute) << name;
  const std::string domain = expected.value("domain", "");
  EXPECT_EQ(actual.domain, domain) << name;
  if (!domain.empty()) {
    EXPECT_EQ(actual.types.bits, TypesOf(version["domains"][domain]).bits) << name;
  } else if (expected.contains("types")) {
    EXPECT_EQ(actual.types.bits, TypesOf(expected["types"]).bits) << name;
  }
  EXPECT_EQ(DefaultText(actual.default_value), DefaultText(version["defaults"].value(name, json()))) << name;
}

TEST(RegistrySpec, EveryVersionOfEveryOpEqualsCoremltools) {
  ASSERT_FALSE(Spec().is_discarded());
  ASSERT_EQ(Spec()["ops"].size(), 168);
  for (const auto& [name, versions] : Spec()["ops"].items()) {
    if (name == kAbsent) continue;
    SCOPED_TRACE(name);
    const auto ours = OpRegistry::Get().Versions(name);
    ASSERT_EQ(ours.size(), versions.size());
    for (size_t v = 0; v < versions.size(); ++v) {  // the JSON lists the oldest first, the registry the newest
      const json& version = versions[v];
      const OpDefinition& definition = ours[ours.size() - 1 - v];
      SCOPED_TRACE(OpsetName(definition.since));
      EXPECT_EQ(OpsetName(definition.since), version["since"].get<std::string>());
      // Up to iOS17, compressed weights are attributes of their constexpr op; from iOS18 on they are its inputs.
      const bool attributes = name.starts_with("constexpr_") && definition.since < Opset::kIOS18;
      size_t position = 0;
      int blocks = 0;
      for (const json& parameter : version["inputs"]) {
        if (parameter["kind"] == "block") ++blocks;
        if (!IsInput(parameter)) continue;
        ASSERT_LT(position, definition.parameters.size());
        CompareParameter(parameter, version, definition.parameters[position++], attributes);
      }
      EXPECT_EQ(position, definition.parameters.size());
      EXPECT_EQ(definition.blocks, blocks);
    }
  }
}

TEST(RegistrySpec, OnlyTheStateOpsAreBeyondTheRegistry) {
  for (const std::string_view name : OpRegistry::Get().Names()) {
    EXPECT_TRUE(Spec()["ops"].contains(std::string(name)) || kStateOps.contains(name)) << name;
  }
  EXPECT_TRUE(OpRegistry::Get().Versions(kAbsent).empty());
}

TEST(RegistrySpec, TheStateUpdateTakesTheTypesOfTheDialectOp) {
  const json& update = Spec()["dialect_ops"]["coreml_update_state"];
  const TypeSet types = TypesOf(update["domains"]["T"]);
  for (const auto& [op, parameter] : {std::pair{"coreml_update_state", "value"}, std::pair{"write_state", "data"}}) {
    const auto versions = OpRegistry::Get().Versions(op);
    ASSERT_EQ(versions.size(), 1) << op;
    EXPECT_EQ(OpsetName(versions.front().since), update["since"].get<std::string>()) << op;
    ASSERT_NE(versions.front().Find(parameter), nullptr) << op;
    EXPECT_EQ(versions.front().Find(parameter)->types.bits, types.bits) << op;
  }
}

}  // namespace
}  // namespace milwright
