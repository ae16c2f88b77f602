"""Peers: other programs that decode the same prompts in the same benchmark.

Each runs in a process, and mostly in a Python environment, of its own.
"""

from outrider.bench.peers.cases import PeerPlan, plan_peer
from outrider.bench.peers.environment import PeerError
from outrider.bench.peers.kinds import PEERS
from outrider.bench.peers.loaded import LoadedPeer, PeerOptions
from outrider.bench.peers.runner import PeerRunner

__all__ = [
    "PEERS",
    "LoadedPeer",
    "PeerError",
    "PeerOptions",
    "PeerPlan",
    "PeerRunner",
    "plan_peer",
]
