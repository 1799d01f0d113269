"""The engine as a library: no server, no socket, no second process.

    python examples/in_process.py "What is the capital of France?" "Name three colours."

Both questions ride in the same iterations; each answer is printed as its request ends.
`--model` takes a directory, a .gguf file or a hub id; the default model is fetched on first use.
"""

from __future__ import annotations

import argparse

from core_engine import Engine, EngineConfig, Request, SamplingParams, prepare_model
from core_engine.text import IncrementalDetokenizer, load_text_model


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer questions with an engine in this process.")
    parser.add_argument("questions", nargs="*", default=["What is the capital of France?", "Name three colours."])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()

    config = EngineConfig(model=arguments.model)
    text_model = load_text_model(prepare_model(config))
    engine = Engine.load(config)

    answers: dict[str, str] = {}
    detokenizers: dict[str, IncrementalDetokenizer] = {}
    for question in arguments.questions:
        engine.submit(
            Request(
                id=question,
                model=engine.info.model,
                prompt_token_ids=text_model.render_chat([{"role": "user", "content": question}]),
                sampling=SamplingParams(temperature=0, max_tokens=arguments.max_tokens),
            )
        )
        answers[question] = ""
        detokenizers[question] = IncrementalDetokenizer(text_model)

    while engine.has_work:
        news = engine.step()  # one iteration: prompts and answers of all requests in one forward pass
        for refusal in news.rejected:
            print(f"{refusal.request_id}\n  refused: {refusal.message}")
        for output in news.outputs:
            answers[output.request_id] += detokenizers[output.request_id].push(output.token_ids)
        for outcome in news.finished:
            answer = answers[outcome.request_id] + detokenizers[outcome.request_id].flush()
            print(f"{outcome.request_id}\n  {answer}\n  ({outcome.num_output_tokens} tokens, {outcome.finish_reason})")


if __name__ == "__main__":
    main()
