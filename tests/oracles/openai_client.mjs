// OpenAI's own client against `milwright serve`: node openai_client.mjs http://127.0.0.1:PORT/v1
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Good morrow, my lord.' }];
const common = { model, messages, temperature: 0, max_tokens: 12 };

const whole = await client.chat.completions.create(common);
assert.equal(whole.choices[0].finish_reason, 'length');
assert.equal(whole.usage.completion_tokens, 12);

let text = '';
let usage = null;
for await (const event of await client.chat.completions.create({
  ...common,
  stream: true,
  stream_options: { include_usage: true },
})) {
  text += event.choices[0]?.delta.content ?? '';
  usage = event.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(usage.prompt_tokens_details.cached_tokens, whole.usage.prompt_tokens - 1);

const completion = await client.completions.create({ model, prompt: 'ROMEO:', temperature: 0, max_tokens: 3 });
assert.equal(completion.usage.completion_tokens, 3);

// Leaving in mid-stream, and errors of the classes that the client has for them.
const stream = await client.chat.completions.create({ ...common, max_tokens: 100, stream: true });
for await (const event of stream) if (event.choices[0].delta.content) break;
await assert.rejects(client.chat.completions.create({ ...common, n: 2 }), (error) => {
  assert(error instanceof OpenAI.BadRequestError);
  return error.param === 'n';
});
await assert.rejects(client.chat.completions.create({ ...common, messages: [] }), OpenAI.BadRequestError);
await assert.rejects(client.embeddings.create({ model, input: 'a' }), OpenAI.NotFoundError);
