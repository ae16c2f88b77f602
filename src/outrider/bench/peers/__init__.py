"""Peers: other programs that decode the same prompts in the same benchmark.

Each runs in a process, and mostly in a Python environment, of its own.
"""

from outrider.bench.peers.cases import PeerPlan, peer_cases, plan_peer
from outrider.bench.peers.environment import PeerError
from outrider.bench.peers.kinds import PEERS
from outrider.bench.peers.runner import PeerRunner, build_peer

__all__ = [
    "PEERS",
    "PeerError",
    "PeerPlan",
    "PeerRunner",
    "build_peer",
    "peer_cases",
    "plan_peer",
]
