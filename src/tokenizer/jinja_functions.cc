// The functions that are variables of every template. Which ones: Hugging Face's chat template environment.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"

namespace milwright::jinja {
namespace {

Result<Value> Range(Interpreter& interpreter, const Arguments& arguments) {
  constexpr int64_t kMaxRange = 100000;  // Jinja's sandbox.MAX_RANGE
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"start", "stop", "step"}));
  MW_ASSIGN_OR_RETURN(int64_t start, reader.Int(0, 0));
  MW_ASSIGN_OR_RETURN(int64_t stop, reader.Int(1, 0));
  MW_ASSIGN_OR_RETURN(const int64_t step, reader.Int(2, 1));
  if (!reader[0]) return Error("range needs an argument");
  if (!reader[1]) stop = std::exchange(start, 0);
  if (step == 0) return Error("the step of range is zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange)
      return Error(fmt::format("range is longer than {}", kMaxRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return interpreter.MakeList(std::move(items));
}

/// The items of the arguments of dict() and namespace(): of a mapping, then the named ones.
Result<std::vector<Dict::Item>> ReadItems(const Arguments& arguments) {
  std::vector<Dict::Item> items;
  for (const Value& argument : arguments.positional) {
    if (argument.dict() == nullptr || arguments.positional.size() > 1)
      return Error("takes one dict and named arguments");
    items = argument.dict()->items();
  }
  for (const auto& [name, value] : arguments.keyword) items.emplace_back(Value(name), value);
  return items;
}

Result<Value> MakeDict(Interpreter& interpreter, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(std::vector<Dict::Item> items, ReadItems(arguments));
  return Dict::Make(std::move(items), interpreter.budget());
}

Result<Value> MakeNamespace(Interpreter& interpreter, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const std::vector<Dict::Item> items, ReadItems(arguments));
  auto space = std::make_shared<Namespace>();
  for (const auto& [key, value] : items) {
    if (key.string() == nullptr) return Error("the attributes of a namespace are strings");
    MW_RETURN_IF_ERROR(interpreter.budget().Allocate(key.string()->size() + sizeof(Value)));
    space->Set(*key.string(), value);
  }
  return interpreter.Keep(std::move(space));
}

Result<Value> RaiseException(Interpreter& interpreter, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"message"}));
  MW_ASSIGN_OR_RETURN(const Value message, reader.Required(0));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(message));
  return Status(ErrorCode::kUsage, fmt::format("the template refuses the messages: {}", text));
}

Result<Value> StrftimeNow(Interpreter& interpreter, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"format"}));
  MW_RETURN_IF_ERROR(reader.Required(0));
  MW_ASSIGN_OR_RETURN(const std::string format, reader.String(0, ""));
  // strftime returns 0 both for "" and for a buffer that is too small, so a character is added to tell them apart.
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof(buffer), (format + "|").c_str(), &interpreter.now());
  if (size == 0) return Error("the date is longer than 1000 bytes");
  return interpreter.MakeString(std::string(buffer, size - 1));
}

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"range", Range},
    {"dict", MakeDict},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

}  // namespace

Function FindFunction(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kFunctions) ? nullptr : found->second;
}

}  // namespace milwright::jinja
