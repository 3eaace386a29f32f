"""The index by the names that other clients know: OpenAI's vector stores and embeddings, and Cohere's and Jina's rerank."""
