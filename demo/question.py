"""One question over HTTP, as any client would ask it."""

from __future__ import annotations

from openai import OpenAI, OpenAIError

from demo.failure import DemoError


def ask(url: str, question: str) -> str:
    """The model's answer, chosen greedily.

    Raises:
        DemoError: the server gave no answer.
    """
    client = OpenAI(base_url=url, api_key="none", timeout=120, max_retries=0)
    try:
        reply = client.chat.completions.create(
            model="smollm",
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=48,
        )
    except OpenAIError as error:
        raise DemoError(f"The server gave no answer: {error}") from error
    return (reply.choices[0].message.content or "").strip()
