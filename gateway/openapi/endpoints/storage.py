"""`/v1/files` and `/v1/batches`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.openapi.endpoints.generation import CREATED
from gateway.protocol.batches import BatchList, BatchObject, BatchRequest
from gateway.protocol.files import FileDeleted, FileList, FileObject
from gateway.routes.files import MAX_PAGE

_FILES, _BATCHES = "Files", "Batches"
_DAY_SECONDS = 86_400


class UploadForm(msgspec.Struct, kw_only=True):
    """A multipart form; JSON Lines whose lines are requests, each with an id, a method, a url and a body."""

    file: Annotated[str, msgspec.Meta(extra_json_schema={"format": "binary"})]
    purpose: Literal["batch"]
    anchor: Literal["created_at"] | UnsetType = msgspec.field(name="expires_after[anchor]", default=UNSET)
    seconds: Annotated[int, msgspec.Meta(ge=3600, le=30 * _DAY_SECONDS)] | UnsetType = msgspec.field(
        name="expires_after[seconds]", default=UNSET
    )


class FileQuery(msgspec.Struct, kw_only=True):
    """The query of a list of files."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE
    order: Literal["asc", "desc"] = "desc"
    after: str | UnsetType = UNSET
    purpose: str | UnsetType = UNSET


class BatchQuery(msgspec.Struct, kw_only=True):
    """The query of a list of batches."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    after: str | UnsetType = UNSET


_LINE = (
    '{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"smollm2","messages":'
    '[{"role":"user","content":"What is the capital of France?"}]}}\n'
)
_FILE = FileObject(
    id="file-1",
    bytes=len(_LINE),
    created_at=CREATED,
    expires_at=CREATED + 30 * _DAY_SECONDS,
    filename="questions.jsonl",
    purpose="batch",
)
_BATCH = BatchObject(
    id="batch_1",
    endpoint="/v1/chat/completions",
    input_file_id="file-1",
    created_at=CREATED,
    expires_at=CREATED + _DAY_SECONDS,
)


def _of_file(description: str) -> Answer:
    return Answer(description, Content(FileObject, _FILE))


def _of_batch(description: str) -> Answer:
    return Answer(description, Content(BatchObject, _BATCH))


STORAGE = (
    Endpoint(
        method="post",
        path="/v1/files",
        also_at="/files",
        name="upload_file",
        family=_FILES,
        summary="Upload the input of a batch",
        request=Content(UploadForm, {"file": _LINE, "purpose": "batch"}, "multipart/form-data"),
        answers={200: _of_file("The file")},
        errors=(503, 507),
    ),
    Endpoint(
        method="get",
        path="/v1/files",
        also_at="/files",
        name="list_files",
        family=_FILES,
        summary="List your files",
        query=FileQuery,
        answers={
            200: Answer(
                "A page of files",
                Content(FileList, FileList(data=[_FILE], first_id=_FILE.id, last_id=_FILE.id, has_more=False)),
            )
        },
        errors=(503,),
    ),
    Endpoint(
        method="get",
        path="/v1/files/{file_id}",
        also_at="/files/{file_id}",
        name="retrieve_file",
        family=_FILES,
        summary="Describe a file",
        answers={200: _of_file("The file")},
        errors=(404, 503),
    ),
    Endpoint(
        method="get",
        path="/v1/files/{file_id}/content",
        also_at="/files/{file_id}/content",
        name="download_file",
        family=_FILES,
        summary="Read a file",
        answers={200: Answer("Its bytes", Content(Any, _LINE, "application/octet-stream"))},
        errors=(404, 503),
    ),
    Endpoint(
        method="delete",
        path="/v1/files/{file_id}",
        also_at="/files/{file_id}",
        name="delete_file",
        family=_FILES,
        summary="Delete a file that no running batch reads",
        answers={200: Answer("It is gone", Content(FileDeleted, FileDeleted("file-1")))},
        errors=(404, 409, 503),
    ),
    Endpoint(
        method="post",
        path="/v1/batches",
        also_at="/batches",
        name="create_batch",
        family=_BATCHES,
        summary="Run the lines of a file",
        request=Content(
            BatchRequest,
            {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"},
        ),
        answers={200: _of_batch("The batch, which begins")},
        errors=(503,),
    ),
    Endpoint(
        method="get",
        path="/v1/batches",
        also_at="/batches",
        name="list_batches",
        family=_BATCHES,
        summary="List your batches, newest first",
        query=BatchQuery,
        answers={
            200: Answer(
                "A page of batches",
                Content(BatchList, BatchList(data=[_BATCH], first_id=_BATCH.id, last_id=_BATCH.id, has_more=False)),
            )
        },
        errors=(503,),
    ),
    Endpoint(
        method="get",
        path="/v1/batches/{batch_id}",
        also_at="/batches/{batch_id}",
        name="retrieve_batch",
        family=_BATCHES,
        summary="Describe a batch",
        answers={200: _of_batch("The batch as it is")},
        errors=(404, 503),
    ),
    Endpoint(
        method="post",
        path="/v1/batches/{batch_id}/cancel",
        also_at="/batches/{batch_id}/cancel",
        name="cancel_batch",
        family=_BATCHES,
        summary="Cancel a batch",
        description="Lines that have run keep their results.",
        answers={200: _of_batch("The batch as it is now")},
        errors=(404, 503),
    ),
)
