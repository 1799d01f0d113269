// The official SDK: ask, stream, the stream helper, list models, an error; the same as a response.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const model = process.env.MODEL;
const body = {
  model,
  messages: [{ role: "user", content: "Hello" }],
  temperature: 0,
  max_tokens: 6,
  ignore_eos: true,
};

const answer = await client.chat.completions.create(body);
let streamed = "";
let usageChoices = null;
const stream = await client.chat.completions.create({
  ...body,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  if (chunk.usage) usageChoices = chunk.choices.length;
}
const helper = await client.chat.completions.stream(body).finalContent().catch((error) => `failed: ${error}`);
const models = [];
for await (const entry of client.models.list()) models.push(entry.id);
const error = await client.chat.completions.create({ ...body, model: "nobody" }).catch((refusal) => refusal.code);
const question = { model, input: "Hello", temperature: 0, max_output_tokens: 6 };
const response = await client.responses.create(question);
let events = "";
for await (const event of await client.responses.create({ ...question, stream: true })) {
  if (event.type === "response.output_text.delta") events += event.delta;
}

console.log(
  JSON.stringify({
    model,
    text: answer.choices[0].message.content,
    streamed,
    usageChoices,
    helper,
    finishReason: answer.choices[0].finish_reason,
    tokens: answer.usage.completion_tokens,
    models,
    error,
    response: response.output_text,
    events,
  }),
);
