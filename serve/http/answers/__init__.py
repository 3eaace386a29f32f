"""The answer of the index in other vendors' words: OpenAI's Responses and Anthropic's Messages, over the pipeline of the routes."""
