// Chats to render with the templates in tests/data/tokenizer/chat.

const user = (content) => ({ role: "user", content });
const assistant = (content, more = {}) => ({ role: "assistant", content, ...more });
const system = (content) => ({ role: "system", content });
const call = (name, args) => ({ type: "function", function: { name, arguments: args } });

const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Tells the weather of a \"place\"; 天気 <now>.",
    parameters: {
      type: "object",
      properties: { place: { type: "string", description: "A town" }, days: { type: "integer", minimum: 1 } },
      required: ["place"],
    },
  },
};
const clock = { type: "function", function: { name: "clock", description: "", parameters: { type: "object", properties: {} } } };

const chats = {
  one: [user("Hi")],
  with_system: [system("Be brief."), user("Hello\nthere "), assistant("Yes?"), user("2+2=?")],
  spaces: [user("  padded  "), assistant("\n\nanswer\n"), user("\tnext")],
  unicode: [user("é 你好 <b>&amp;</b> \"q\" 'q' 😀"), assistant("ok"), user("x")],
  thinking: [
    user("Why?"), assistant("<think>\nhm, let me see\n</think>\n\nBecause."), user("Sure?"),
    assistant("Yes.", { reasoning_content: "\nshort thought\n" }), user("Thanks"),
  ],
  tool_use: [
    system("Use tools."), user("Weather in Köln?"),
    assistant("", { tool_calls: [call("get_weather", { place: "Köln", days: 2 })] }),
    { role: "tool", content: "{\"sky\": \"rain\"}", name: "get_weather" }, assistant("It rains."), user("And now?"),
  ],
  two_calls: [
    user("Both!"), assistant("Looking.", { tool_calls: [call("get_weather", { place: "A" }), call("clock", {})] }),
    { role: "tool", content: "sun" }, { role: "tool", content: "12:00" },
  ],
  bad_order: [user("a"), user("b")],
  starts_with_assistant: [assistant("a"), user("b")],
  parts: [user([{ type: "text", text: "look: " }, { type: "image" }, { type: "text", text: " nice" }])],
};

// Which chats, with which more variables, each template renders.
const plain = [{}, { add_generation_prompt: false }];
const runs = {
  llama3: [
    ...plain, { tools: [weather] }, { tools: [weather, clock], tools_in_user_message: false },
    { date_string: "01 Jan 2025" }, { tools: [clock], add_generation_prompt: false },
  ],
  gemma: plain,
  qwen3: [...plain, { tools: [weather, clock] }, { enable_thinking: false }, { enable_thinking: true, tools: [clock] }],
  mistral: [...plain, { tools: [weather] }],
  features: plain,
};

// These templates print a list of parts as Python does, which the JavaScript library cannot.
const chatsFor = (template) =>
  Object.entries(chats).filter(([name]) => name !== "parts" || !["llama3", "mistral"].includes(template));

export { chats, chatsFor, runs };
