// The AI SDK: objects by a schema, at once and streamed.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, jsonSchema, streamObject } from "ai";

const provider = createOpenAICompatible({
  name: "jitney",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: "none",
  supportsStructuredOutputs: true,
});
const schema = jsonSchema({
  type: "object",
  properties: {
    colour: { enum: ["red", "blue"] },
    size: { type: "integer", minimum: 30, maximum: 60 },
    clean: { type: "boolean" },
  },
  required: ["colour", "size", "clean"],
  additionalProperties: false,
});
const options = {
  model: provider(process.env.MODEL),
  prompt: "A shirt.",
  schema,
  temperature: 1,
  maxOutputTokens: 200,
  maxRetries: 0,
};

const whole = await generateObject(options);
let streamed = null;
for await (const part of streamObject(options).partialObjectStream) streamed = part;

console.log(JSON.stringify({ shirts: [whole.object, streamed] }));
