// The official SDK: a call streamed and put together by its helper, and a whole conversation with the tool run by it.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const model = process.env.MODEL;
const messages = [{ role: "user", content: "Do I need an umbrella?" }];
const parameters = { type: "object", properties: { town: { type: "string" } }, required: ["town"] };
const weather = { name: "weather", description: "The weather in a town.", parameters };

const message = await client.chat.completions
  .stream({ model, messages, tools: [{ type: "function", function: weather }] })
  .finalMessage();

const towns = [];
const report = ({ town }) => {
  towns.push(town);
  return "rain, 7 degrees";
};
const runner = client.chat.completions.runTools({
  model,
  messages,
  stream: true,
  tools: [{ type: "function", function: { ...weather, function: report, parse: JSON.parse } }],
});
const answer = await runner.finalContent();

console.log(
  JSON.stringify({
    text: message.content,
    calls: message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
    towns,
    answer,
  }),
);
