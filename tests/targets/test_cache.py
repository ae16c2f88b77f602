from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from outrider.targets.cache import KVCache, Placement

HEADS, WIDTH = 2, 3


def rows(*values: list[float]) -> Tensor:
    """Return keys [B, heads, W, width] whose every entry says which token they are."""
    tensor = torch.tensor(values, dtype=torch.float64)
    return tensor[:, None, :, None].expand(-1, HEADS, -1, WIDTH).clone()


def write(cache: KVCache, new: Tensor, *, first: int, starts: tuple[int, ...]) -> None:
    cache.write(0, new, -new, Placement(first, starts, new.shape[2]), 8)


def held(cache: KVCache, slot: int, bucket: int = 8) -> list[float]:
    """Return what a slot's keys say, having checked that values and heads say the same."""
    empty = torch.zeros(1, HEADS, 0, WIDTH, dtype=torch.float64)
    keys, values = cache.write(0, empty, empty, Placement(slot, (0,), 0), bucket)
    assert torch.equal(keys, -values)
    assert torch.equal(keys, keys[:, :1, :, :1].expand_as(keys))
    found: list[float] = keys[0, 0, :, 0].tolist()
    return found


@pytest.fixture(autouse=True)
def _passes_run_in_inference_mode() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture
def cache() -> KVCache:
    cache = KVCache()
    cache.reserve(3, 8)
    write(cache, rows([1, 2, 3], [4, 5, 6], [7, 8, 9]), first=0, starts=(0, 0, 0))
    return cache


def test_a_pass_writes_to_its_own_slots_and_reads_whole_buckets(cache: KVCache) -> None:
    keys, values = cache.write(
        0, rows([10.0], [20.0]), rows([30.0], [40.0]), Placement(1, (3, 3), 1), 5
    )
    assert keys[:, 0, :, 0].tolist() == [[4, 5, 6, 10, 0], [7, 8, 9, 20, 0]]
    assert values[:, 1, :, 2].tolist() == [[-4, -5, -6, 30, 0], [-7, -8, -9, 40, 0]]
    assert held(cache, 0) == [1, 2, 3, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("starts", [(3, 3, 3), (1, 3, 5)])
def test_rows_go_where_each_sequence_has_come_to(
    cache: KVCache, starts: tuple[int, int, int]
) -> None:
    write(cache, rows([11, 12], [21, 22], [31, 32]), first=0, starts=starts)
    for slot, start in enumerate(starts):
        expected = [3.0 * slot + i for i in (1, 2, 3)] + [0.0] * 5
        expected[start : start + 2] = [10.0 * slot + 11, 10.0 * slot + 12]
        assert held(cache, slot) == expected


def test_an_accepted_path_moves_together_and_nothing_else_moves(cache: KVCache) -> None:
    write(cache, rows([10, 11, 12, 13, 14]), first=1, starts=(3,))
    cache.compact(1, 3, (1, 2, 4))
    assert held(cache, 1)[:6] == [4, 5, 6, 11, 12, 14]
    assert held(cache, 0)[:3] == [1, 2, 3]
    assert held(cache, 2)[:3] == [7, 8, 9]


@pytest.mark.parametrize("path", [(), (0,), (0, 1, 2)])
def test_a_path_without_gaps_is_already_in_place(cache: KVCache, path: tuple[int, ...]) -> None:
    before = held(cache, 1)
    cache.compact(1, 0, path)
    assert held(cache, 1) == before


def test_growing_keeps_what_is_held(cache: KVCache) -> None:
    size = cache.num_bytes
    cache.reserve(2, 8)
    assert cache.num_bytes == size
    cache.reserve(5, 300)
    assert cache.num_bytes > size
    assert [held(cache, slot)[:3] for slot in range(3)] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert held(cache, 4, 300) == [0] * 300


def test_slots_asked_for_one_by_one_are_copied_a_few_times_and_not_each_time() -> None:
    cache = KVCache()
    cache.reserve(1, 8)
    write(cache, rows([7]), first=0, starts=(0,))
    stores: list[Tensor] = []
    for slots in range(2, 65):
        cache.reserve(slots, 8, spare_bytes=1 << 30)
        if not stores or cache.tensors[0] is not stores[-1]:
            stores.append(cache.tensors[0])
        assert held(cache, 0)[0] == 7.0
        assert slots <= cache.tensors[0].shape[0] <= 1.5 * slots + 1
    assert len(stores) <= 11


def test_without_bytes_to_spare_no_slot_is_made_that_was_not_asked_for(cache: KVCache) -> None:
    per_slot = cache.num_bytes // 3
    cache.reserve(4, 8, spare_bytes=2 * per_slot - 1)
    assert cache.num_bytes == 4 * per_slot
    cache.reserve(5, 8, spare_bytes=2 * per_slot)
    assert cache.num_bytes == 6 * per_slot


def test_spare_slots_are_given_up_for_longer_ones_and_those_asked_for_are_kept() -> None:
    cache = KVCache()
    cache.reserve(4, 8)
    write(cache, rows([7], [7], [7], [7]), first=0, starts=(0, 0, 0, 0))
    cache.reserve(5, 8, spare_bytes=1 << 30)
    assert cache.size_for(5, 8)[0] == cache.size_for(7, 8)[0] == 7
    cache.reserve(6, 8)  # one of the spare ones
    assert cache.size_for(0, 300) == (6, 512)
    cache.reserve(0, 300)
    assert cache.tensors[0].shape[:1] == (6,)
    assert [held(cache, slot)[0] for slot in range(6)] == [7, 7, 7, 7, 0, 0]


def test_a_layer_first_seen_later_has_the_same_room(cache: KVCache) -> None:
    cache.write(7, rows([5.0]), rows([5.0]), Placement(2, (6,), 1), 8)
    assert cache.layers == [0, 7]


def test_a_moved_sequence_leaves_nothing_of_the_slots_last_owner(cache: KVCache) -> None:
    write(cache, rows([1, 2, 3, math.nan, math.nan]), first=0, starts=(0,))
    cache.move(2, 0, 2)
    assert held(cache, 0) == [7, 8, 0, 0, 0, 0, 0, 0]
    assert held(cache, 2)[:3] == [7, 8, 9]


def test_a_cleared_slot_holds_zeros_however_far_it_was_written(cache: KVCache) -> None:
    write(cache, rows([math.nan, math.nan], [1, 1]), first=1, starts=(6, 2))
    cache.clear(1)
    assert held(cache, 1) == [0] * 8
    assert held(cache, 0)[:3] == [1, 2, 3]
    assert held(cache, 2)[:5] == [7, 8, 1, 1, 0]
