"""Every endpoint, a file for each family."""

from __future__ import annotations

from gateway.openapi.endpoints.admin import ADMIN
from gateway.openapi.endpoints.generation import GENERATION
from gateway.openapi.endpoints.messages import MESSAGES
from gateway.openapi.endpoints.models import MODELS
from gateway.openapi.endpoints.operation import OPERATION
from gateway.openapi.endpoints.responses import RESPONSES
from gateway.openapi.endpoints.storage import STORAGE

ENDPOINTS = (*GENERATION, *RESPONSES, *MESSAGES, *MODELS, *STORAGE, *OPERATION, *ADMIN)
