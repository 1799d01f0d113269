"""The OpenAPI document: what every endpoint takes and answers, from the structs that decode and encode it."""
