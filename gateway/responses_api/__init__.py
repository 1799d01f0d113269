"""The Responses API: responses that may be kept, and conversations that go on from them."""
