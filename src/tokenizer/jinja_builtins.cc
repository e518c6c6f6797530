#include "tokenizer/jinja_builtins.h"

#include <fmt/format.h>

namespace milwright::jinja {
namespace {

class FunctionObject : public Object {
 public:
  explicit FunctionObject(Function function) : function_(function) {}
  [[nodiscard]] std::string_view TypeName() const override { return "function"; }
  [[nodiscard]] bool callable() const override { return true; }
  Result<Value> Call(Interpreter& interpreter, const Arguments& arguments) override {
    return function_(interpreter, arguments);
  }

 private:
  Function function_;
};

class MethodObject : public Object {
 public:
  MethodObject(Value self, Method method) : self_(std::move(self)), method_(method) {}
  [[nodiscard]] std::string_view TypeName() const override { return "method"; }
  [[nodiscard]] bool callable() const override { return true; }
  Result<Value> Call(Interpreter& interpreter, const Arguments& arguments) override {
    return method_(interpreter, self_, arguments);
  }

 private:
  Value self_;
  Method method_;
};

}  // namespace

std::shared_ptr<Object> MakeFunctionObject(Function function) { return std::make_shared<FunctionObject>(function); }

std::shared_ptr<Object> MakeMethodObject(Value self, Method method) {
  return std::make_shared<MethodObject>(std::move(self), method);
}

Filter FindFilter(std::string_view name) {
  const Filter filter = FindTextFilter(name);
  return filter != nullptr ? filter : FindSequenceFilter(name);
}

Result<ArgumentReader> ArgumentReader::Bind(const Arguments& arguments, const std::vector<std::string_view>& names) {
  ArgumentReader reader;
  reader.names_ = names;
  MW_ASSIGN_OR_RETURN(reader.values_, arguments.Bind(names));
  return reader;
}

Result<Value> ArgumentReader::Required(size_t index) const {
  if (values_[index]) return *values_[index];
  return Status(ErrorCode::kRuntime, fmt::format("needs the argument \"{}\"", names_[index]));
}

Result<std::string> ArgumentReader::String(size_t index, std::string_view fallback) const {
  const std::optional<Value>& value = values_[index];
  if (!value) return std::string(fallback);
  if (value->string() != nullptr) return *value->string();
  return Status(ErrorCode::kRuntime,
                fmt::format("the argument \"{}\" must be a string, not a {}", names_[index], value->TypeName()));
}

Result<int64_t> ArgumentReader::Int(size_t index, int64_t fallback) const {
  const std::optional<Value>& value = values_[index];
  if (!value) return fallback;
  if (value->is_integral()) return value->AsInt();
  return Status(ErrorCode::kRuntime,
                fmt::format("the argument \"{}\" must be an integer, not a {}", names_[index], value->TypeName()));
}

bool ArgumentReader::Bool(size_t index, bool fallback) const {
  return values_[index] ? values_[index]->IsTrue() : fallback;
}

}  // namespace milwright::jinja
