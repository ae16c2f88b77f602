"""Sets of nodes in words of 64 bits."""

from __future__ import annotations

import pytest

from outrider.trees.bits import bit_words


@pytest.mark.parametrize("nodes", [1, 63, 64, 65, 130])
def test_every_node_of_a_set_is_its_bit_and_no_other(nodes: int) -> None:
    sets = [0, *(1 << node | 1 for node in range(nodes))]
    words = bit_words(sets)
    assert len(words) == len(sets)
    for bits, row in zip(sets, words.tolist(), strict=True):
        found = {64 * w + i for w, word in enumerate(row) for i in range(64) if word >> i & 1}
        assert found == {node for node in range(nodes) if bits >> node & 1}
