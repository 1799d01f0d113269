// The AI SDK with its provider for OpenAI-compatible servers: text at once and streamed.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const provider = createOpenAICompatible({
  name: "jitney",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: "none",
  includeUsage: true,
});
const options = {
  model: provider(process.env.MODEL),
  prompt: "Hello",
  temperature: 0,
  maxOutputTokens: 6,
  maxRetries: 0,
  providerOptions: { jitney: { ignore_eos: true } },
};

const answer = await generateText(options);
const stream = streamText(options);
let streamed = "";
for await (const text of stream.textStream) streamed += text;

console.log(
  JSON.stringify({
    text: answer.text,
    streamed,
    finishReason: answer.finishReason,
    streamedFinishReason: await stream.finishReason,
    tokens: (await stream.usage).outputTokens,
  }),
);
