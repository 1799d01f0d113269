"""langchain-openai: vectors of documents and of a query; its argument is the embedding model's name."""

from __future__ import annotations

import json
import sys

from langchain_openai import OpenAIEmbeddings

# Token ids that it counts itself would be those of OpenAI's models.
embeddings = OpenAIEmbeddings(model=sys.argv[1], max_retries=0, check_embedding_ctx_length=False)
print(
    json.dumps(
        {
            "documents": embeddings.embed_documents(["The bus", "Paris"]),
            "query": embeddings.embed_query("The bus"),
        }
    )
)
