"""Large outputs cross the process boundary in pieces that say the same."""

from __future__ import annotations

from core_engine.messages import Accepted, IterationOutput, IterationStats, Outcome, SequenceOutput
from core_engine.prompt_logprobs import PromptLogprobs
from core_engine.service.pieces import PIECE_BYTES, in_pieces

SCORES = PromptLogprobs.pack(1, [(-1.0, 1, [(5, -1.0)] * 20)] * 256)


def output(num_told: int) -> IterationOutput:
    told = [SequenceOutput("r", 0, [], prompt_logprobs=[SCORES]) for _ in range(num_told)]
    return IterationOutput(
        epoch=3,
        policy_version=2,
        accepted=[Accepted("r", 16)],
        outputs=[*told, SequenceOutput("r", 0, [7], None, "length")],
        finished=[Outcome(request_id="r", finish_reason="length")],
        stats=IterationStats(iteration=9),
    )


def test_a_small_output_is_one_message() -> None:
    whole = output(3)
    assert list(in_pieces(whole)) == [whole]


def test_a_large_output_is_cut_without_loss() -> None:
    whole = output(100)
    first, *others, last = pieces = list(in_pieces(whole))
    assert len(pieces) == 100 * SCORES.num_bytes // PIECE_BYTES + 1
    assert [told for piece in pieces for told in piece.outputs] == whole.outputs
    assert (first.accepted, last.finished, last.stats) == (whole.accepted, whole.finished, whole.stats)
    for piece in (*others, last):
        assert not piece.accepted
    for piece in (first, *others):
        assert sum(s.num_bytes for told in piece.outputs for s in told.prompt_logprobs) < PIECE_BYTES * 1.1
        assert not piece.finished
        assert piece.stats is None
    assert {(piece.epoch, piece.policy_version) for piece in pieces} == {(3, 2)}
