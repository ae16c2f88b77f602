"""What proofs and losses say alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.machine import Machine
from outrider.profile import Subject
from outrider.proof.base import Check, Proof
from outrider.proof.evidence import Evidence
from outrider.proof.loss import Departure, Distance, Loss

RUN: dict[str, Any] = {
    "subject": Subject("org/big", "c0", "bfloat16", "fast", is_compiled=True, placement="cpu"),
    "machine": Machine("p", 2, 2, None, {"torch": "1"}),
    "drafters": ("suffix",),
    "settings": {"tokens": 2000},
    "seconds": 90.0,
    "was_interrupted": True,
    "measured": "2026-01-02T03:04:05+00:00",
}
PROOF = Proof(checks=(Check("rules", "match: sampled chains", {"laws": 24}),), **RUN)
LOSS = Loss(
    rule="fly:2,0.3",
    distances=(Distance("likely drafts", 500, 900, 700, 0.25, 0.06, 0.5, 0.09),),
    departures=(Departure("suffix", 18, 2000, 90, 80, 1200, 500, 0, 1500),),
    **RUN,
)


@pytest.mark.parametrize(
    ("evidence", "findings"),
    [(PROOF, {"checks"}), (LOSS, {"lossy", "sampled", "greedy", "dropped"})],
)
def test_every_document_says_what_was_run_and_how_it_ended(
    evidence: Evidence, findings: set[str]
) -> None:
    document = json.loads(json.dumps(evidence.to_dict(), allow_nan=False))
    head = {name: value for name, value in document.items() if name not in findings}
    assert findings <= set(document)
    assert head == {
        "proved": False,
        "verdict": evidence.verdict,
        "interrupted": True,
        "subject": {
            "model": "org/big",
            "config": "c0",
            "dtype": "bfloat16",
            "numerics": "fast",
            "is_compiled": True,
            "placement": "cpu",
            "reads_blocks": False,
        },
        "machine": document["machine"],
        "drafters": ["suffix"],
        "settings": {"tokens": 2000},
        "measured": "2026-01-02T03:04:05+00:00",
        "seconds": 90.0,
    }
    assert document["machine"]["processor"] == "p"
