// The AI SDK: a whole conversation in which it runs the tool, at once and streamed.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const provider = createOpenAICompatible({ name: "jitney", baseURL: process.env.OPENAI_BASE_URL, apiKey: "none" });
const towns = [];
const options = {
  model: provider(process.env.MODEL),
  prompt: "Do I need an umbrella?",
  maxRetries: 0,
  stopWhen: stepCountIs(3),
  tools: {
    weather: tool({
      description: "The weather in a town.",
      inputSchema: jsonSchema({ type: "object", properties: { town: { type: "string" } }, required: ["town"] }),
      execute: async ({ town }) => {
        towns.push(town);
        return "rain, 7 degrees";
      },
    }),
  },
};

const whole = await generateText(options);
const stream = streamText(options);
let streamed = "";
for await (const text of stream.textStream) streamed += text;

console.log(
  JSON.stringify({ answer: whole.text, steps: whole.steps.map((step) => step.finishReason), streamed, towns }),
);
