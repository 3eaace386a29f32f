"""Models behind the server: vLLM, an OpenAI-compatible URL, transformers, or none."""
